// The card of a word: the model's alternatives, and a button for each that continues the answer from it.

import { filledBar, h, percent, say } from "../base/dom.js";
import { placeCard } from "../base/frame.js";
import { goOnFrom } from "../chat/asking.js";
import { screen } from "../page/machine.js";
import { nameOf } from "../data/history.js";

// The reason for the chosen token, in a sentence or two
function whyItCame(lane, index, rank) {
  const { temperature, seed } = lane.header.sampling;
  const place = say(rank === 1 ? "alternatives_rank_1" : "alternatives_rank", { rank });
  if (lane.tokens[index].forced) return `${say("alternatives_forced")} ${place}`;
  if (!temperature) return place;
  return `${place} ${say("alternatives_drawn", { seed, position: lane.header.num_prompt_tokens + index })}`;
}

export class Alternatives {
  // `wordAt(index)` is a word's element
  constructor(host, wordAt) {
    this.wordAt = wordAt;
    this.box = h("div.alternatives", {
      popover: "auto",
      role: "dialog",
      "aria-label": say("alternatives"),
      onkeydown: (event) => this.onKey(event),
      ontoggle: ({ newState }) => newState === "closed" && this.mark(null),
    });
    host.append(this.box);
  }

  // The card of the first word of the step on screen
  openStep({ tab, run, index }) {
    const first = run?.main?.countAfter(index - 1);
    if (tab === "watch" && first !== undefined) this.open(run, first);
  }

  open(run, index) {
    if (!run?.main?.tokens[index]) return;
    Object.assign(this, { run, index });
    this.box.replaceChildren(...this.content());
    if (!this.box.matches(":popover-open")) this.box.showPopover();
    const word = this.wordAt(index);
    if (word) {
      placeCard(this.box, word.getBoundingClientRect());
      // On a narrow screen the card is at the lower edge, where it may cover the word
      const [{ top, bottom }, card] = [word, this.box].map((one) => one.getBoundingClientRect());
      if (bottom > card.top && top < card.bottom) word.scrollIntoView({ block: "start" });
    }
    this.mark(word);
    this.box.querySelector("button:not(:disabled)").focus();
  }

  content() {
    const { run, index } = this;
    const lane = run.main;
    const found = run.alternativesAt(index);
    const own = lane.tokens[index];
    const close = h(
      "button.card-close.icon-button",
      {
        "aria-label": say("close"),
        onclick: () => this.box.hidePopover(),
      },
      "×",
    );
    const head = h("div.card-head", h("bdi.mono", nameOf(lane, own.id, own.piece)));
    if (!found) return [head, h("p", say("alternatives_none")), close];
    const [came, ...likeliest] = found.tokens;
    const all = likeliest.some(([id]) => id === came[0]) ? likeliest : [...likeliest, came];
    const listed = all.findIndex(([id]) => id === own.id);
    const rank = found.tokens[0][0] === own.id ? found.rank : listed + 1;
    const live = run.source === "live" && screen.server;
    const { temperature } = lane.header.sampling;
    return [
      head,
      h("p", whyItCame(lane, index, rank)),
      live ? h("div.card-note", say("go_on_here")) : null,
      h(
        "div.alternative-list",
        all.map((one) => this.line(lane, one, one[0] === own.id, live)),
      ),
      h(
        "div.card-note",
        say(temperature ? "alternatives_about" : "alternatives_greedy", { temperature }),
      ),
      live ? null : h("div.card-note", say("alternatives_recorded")),
      close,
    ].filter(Boolean);
  }

  line(lane, [id, piece, logprob], came, live) {
    const token = nameOf(lane, id, piece);
    const chance = logprob === null ? 0 : Math.exp(logprob);
    const parts = [
      h("bdi.mono", token),
      filledBar(came ? "fill-ink" : "fill-rest", Math.max(0.005, chance)),
      h("span.bar-value", percent(chance)),
      h("span.came", came ? `✓ ${say("alternatives_came")}` : ""),
    ];
    if (!live) return h("div.alternative", parts);
    const go = () => {
      this.box.hidePopover();
      goOnFrom(this.run, this.index, id);
    };
    return h(
      "button.alternative",
      {
        "data-id": id,
        disabled: Boolean(lane.header.special_tokens[String(id)]),
        onclick: go,
        "aria-label": say("go_on_with", { token: `“${token}”`, percent: percent(chance) }),
      },
      parts,
    );
  }

  mark(word) {
    this.marked?.classList.remove("asked-about");
    this.marked = word;
    word?.classList.add("asked-about");
  }

  // ← → open the previous and the next word, ↑ ↓ move through the alternatives
  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step && !move) {
      // The page's own keys wait, but for a clicker's
      if (event.key.startsWith("Page")) this.box.hidePopover();
      else event.stopPropagation();
      return;
    }
    event.preventDefault();
    if (step) return this.open(this.run, this.index + step);
    const buttons = [...this.box.querySelectorAll("button:not(:disabled)")];
    buttons[
      (buttons.indexOf(document.activeElement) + move + buttons.length) % buttons.length
    ].focus();
  }
}
