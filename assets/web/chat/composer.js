// The composer: the question box with Stop and Ask, example questions, and a line about the next question.

import { counted, h, linkButton, number, say, setText } from "../base/dom.js";
import { ask, askOffered, parentOfNext, sentTurns, stopAll } from "./asking.js";
import { leaveOut, undoNewChat } from "./chats.js";
import { turnsUpTo } from "./tree.js";
import { chip } from "../page/chip.js";
import { change, pages, screen, state } from "../page/machine.js";
import { openPairs } from "../page/pairs.js";

const NEARLY_FULL = 0.9; // share of the context from which the page offers to leave out turns

export class Composer {
  constructor() {
    this.box = h("textarea", {
      rows: 1,
      dir: "auto",
      "aria-label": say("question_box"),
      placeholder: say("question_box"),
      onkeydown: (event) => this.onKey(event),
      oninput: () => this.fit(),
      onfocus: () => this.fit(), // the projector may have changed the size of the type
    });
    this.stop = h("button", { type: "button", id: "stop", onclick: stopAll }, say("stop"));
    this.offered = h(
      "div",
      { id: "examples" },
      screen.host.questions.map((question, i) =>
        h(
          "button.jk-chip",
          {
            type: "button",
            id: `example-${i}`,
            onclick: () => askOffered(question),
          },
          question,
        ),
      ),
    );
    this.line = h("div.chat-line", { id: "jk-chat", role: "status" });
    this.meter = h("span.meter.tabular");
    const form = h(
      "form.composer",
      { onsubmit: (event) => this.submit(event) },
      h("div", { id: "question" }, this.box),
      this.stop,
      h("button.primary", { id: "ask" }, say("ask")),
    );
    this.element = h(
      "div",
      { id: "question-row" },
      this.offered,
      form,
      h("div.under-composer.muted", this.line, this.meter),
    );
  }

  submit(event) {
    event.preventDefault();
    ask();
    this.fit();
  }

  onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    event.stopPropagation();
    this.submit(event);
  }

  // As high as its text, up to the stylesheet's limit
  fit() {
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
  }

  draw() {
    const parent = parentOfNext(state);
    const turns = sentTurns(parent);
    const key = JSON.stringify([
      parent.id,
      turns.length,
      state.chat.skipped,
      state.from?.id,
      Boolean(state.putAway),
      parent.finished,
      [chip.value?.target, chip.value?.choosable],
    ]);
    if (key === this.key) return;
    this.key = key;
    const said = this.words(turns);
    this.line.replaceChildren(...said.filter(Boolean));
    this.drawMeter(turns);
  }

  words(turns) {
    const { skipped } = state.chat;
    if (state.from)
      return [
        say(turns.length ? "chat_instead" : "chat_fresh"),
        linkButton("chat_go_on", () => change({ from: null })),
      ];
    if (turns.length || skipped)
      return [
        skipped
          ? say("chat_left_out", { turns: counted("earlier_turn", skipped) })
          : say("chat_next", { turns: counted("earlier_turn", turns.length) }),
        skipped ? linkButton("chat_all", () => leaveOut(0)) : null,
      ];
    if (state.putAway) return [say("chat_put_away"), linkButton("chat_undo", undoNewChat)];
    const { target, size, choosable } = chip.value ?? {};
    return target
      ? [
          h("span", { title: size || null }, say("answers_here", { target })),
          choosable && linkButton("other_model", openPairs),
        ]
      : [];
  }

  // How much of the context the next question uses before it is typed
  drawMeter(turns) {
    const most = chip.value?.context;
    const used = sizeOf(turns);
    this.meter.hidden = !turns.length || !most;
    if (this.meter.hidden) return;
    setText(this.meter, say("context_used", { n: number(used, 0), most: number(most, 0) }));
    if (used > NEARLY_FULL * most) this.meter.append(" ", linkButton("leave_out", leaveOutOldest));
  }
}

const charactersOf = (turns) =>
  turns.reduce((sum, { question, answer }) => sum + question.length + answer.length, 0);

// Estimates the tokens of these turns from the last one's prompt and answer, in proportion to their characters
function sizeOf(turns) {
  const last = turns.at(-1);
  if (!last) return 0;
  const sent = charactersOf(turnsUpTo(last).slice(last.skipped ?? 0));
  return Math.round((last.numTokens * charactersOf(turns)) / Math.max(1, sent));
}

// Leaves out as many of the oldest turns as it takes to use at most half of the context
export function leaveOutOldest() {
  const turns = sentTurns(parentOfNext(state));
  const fits = turns.findIndex((_, i) => sizeOf(turns.slice(i)) <= chip.value.context / 2);
  leaveOut(state.chat.skipped + (fits < 0 ? turns.length : Math.max(1, fits)));
}

// The question that was too long with them is in the box again
pages.leaveOut = () => {
  leaveOutOldest();
  ask();
};
