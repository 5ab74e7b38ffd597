// The answer as tokens: every character once, underlined by proposer and tinted in the step on screen; the model's own tokens
// have no mark. A character of several tokens has as many segments of underline.

import { copied, h, say, setText, wholePercent } from "../base/dom.js";
import { spacedHex, unitsOf } from "../base/pieces.js";
import { TARGET, usualProposers } from "../data/methods.js";
import { metrics } from "../data/metrics.js";
import { markerSample } from "../tree/marker.js";
import { BlockWriter, blocksOf, repeatsItself } from "./formatted.js";

const THOUGHTS = /^\s*<think>[^]*?(<\/think>|$)/; // which a reasoning model writes before its answer

const STACKED = /\p{M}{4}/u; // marks on marks, which would reach over the lines around them

// Index up to which units of the first `count` tokens no longer change. Between two ASCII characters, except a line feed after a
// carriage return, there is always a border of characters.
function settledBefore(tokens, count) {
  for (let i = count - 1; i > 0; i -= 1) {
    const [before, after] = [tokens[i - 1], tokens[i]];
    const ascii = before.bytes.at(-1) < 0x80 && after.bytes[0] < 0x80; // neither is empty
    if (ascii && !before.special && !after.special && after.bytes[0] !== 0x0a) return i;
  }
  return 0;
}

const isSame = (before, block) =>
  before.base === block?.base && JSON.stringify(before.node) === JSON.stringify(block.node);

export class AnswerView {
  // `onToken` is called with the index of a pressed token
  constructor(host, onToken) {
    this.text = h("div.answer-text", { role: "log", "aria-live": "off" });
    this.tail = h("div.answer-end.muted");
    host.append(this.text, this.tail);
    this.text.addEventListener("click", (event) => {
      const token = event.target.closest?.("[data-token]");
      if (token && this.lane) onToken?.(Number(token.dataset.token), event);
    });
  }

  // Shows the first `count` tokens of a lane; `live` means more may come; `selected` is the step shown elsewhere;
  // tokens from `reached` on are grey
  draw(lane, count, { live, selected = -1, tail, formatted, reached = count }) {
    if (this.lane !== lane || this.formatted !== formatted) {
      this.text.replaceChildren();
      Object.assign(this, {
        thoughts: null,
        lane,
        formatted,
        count: 0,
        units: [],
        blocks: [],
        source: "",
        selected: null,
      });
    }
    const from = settledBefore(lane.tokens, Math.min(this.count, count));
    this.count = count;
    const tokens = lane.tokens.slice(from, count);
    this.patch(
      withSpecials(unitsOf(tokens), tokens).map((unit) => this.describe(unit, tokens, from, live)),
      from,
    );
    this.foldThoughts(live);
    this.select(selected);
    this.grey(reached);
    setText(
      this.tail,
      [tail, tail !== undefined && repeatsItself(this.source) && say("repeats_itself")]
        .filter(Boolean)
        .join(" "),
    );
  }

  describe(unit, tokens, start, live) {
    const state = unit.state === "open" ? (live ? "open" : "bad") : unit.state;
    const proposers = tokens.slice(unit.first, unit.last + 1).map((token) => token.proposer);
    const key = `${start + unit.first}-${start + unit.last}|${unit.text}|${state}|${unit.special || ""}`;
    return {
      ...unit,
      text: state === "open" ? "" : unit.text,
      state,
      proposers,
      key,
      first: start + unit.first,
      last: start + unit.last,
      step: tokens[unit.first].step,
    };
  }

  // Units of tokens before `from` stay; the others become `wanted`. Blocks of text that end before the change stay too, except
  // the last of these, which the following text may extend
  patch(wanted, from) {
    const { units, blocks } = this;
    let same = units.length;
    while (same && units[same - 1].last >= from) same -= 1;
    const kept = same;
    while (same - kept < wanted.length && wanted[same - kept].key === units[same]?.key) same += 1;
    if (same === units.length && same - kept === wanted.length) return;
    units.splice(same, Infinity, ...wanted.slice(same - kept));
    let at = same ? units[same - 1].at + units[same - 1].text.length : 0;
    this.source =
      this.source.slice(0, at) +
      units
        .slice(same)
        .map((unit) => unit.text)
        .join("");
    const changed = at;
    for (const unit of units.slice(same)) at = (unit.at = at) + unit.text.length;
    const whole = blocks.findIndex((block) => block.end >= changed);
    const stay = Math.max(0, (whole < 0 ? blocks.length : whole) - (this.formatted ? 1 : 0));
    const gone = blocks.splice(stay);
    const start = blocks.at(-1)?.end ?? 0;
    const thinking = this.formatted ? (THOUGHTS.exec(this.source)?.[0].length ?? 0) : 0;
    const parse = (from, to) => blocksOf(this.source.slice(from, to), from, this.formatted);
    const thoughts = start < thinking ? parse(start, thinking) : [];
    thoughts.forEach((block) => (block.isThought = true));
    const parsed = [...thoughts, ...parse(Math.max(start, thinking), this.source.length)];
    // That last one mostly is as it was
    if (gone[0]?.end < changed && isSame(gone[0], parsed[0])) {
      blocks.push(gone.shift());
      parsed.shift();
    }
    gone.forEach(({ element }) => element.remove());
    this.write(parsed, blocks.at(-1)?.end ?? 0);
  }

  write(parsed, start) {
    const { units, source, text } = this;
    let next = units.findIndex(
      (unit) => unit.at + unit.text.length > start || (!unit.text && unit.at >= start),
    );
    let written = start;
    const write = (parent, to, sign) => {
      for (; next >= 0 && next < units.length && units[next].at < to; next += 1) {
        const unit = units[next];
        const [first, end] = [Math.max(unit.at, written), Math.min(unit.at + unit.text.length, to)];
        const piece = this.element(unit, unit.text.slice(first - unit.at, end - unit.at));
        if (sign) piece.classList.add("sign");
        parent.append(piece);
        if (end < unit.at + unit.text.length) break;
      }
      written = Math.max(written, to);
    };
    const writer = new BlockWriter(source, write, copied);
    let last = text;
    for (const block of parsed) {
      block.element = writer.block(block);
      last = writer.last;
      (block.isThought ? this.thoughtBox() : text).append(block.element);
      this.blocks.push(block);
    }
    write(last, Infinity, false); // tokens without characters are placed after the last one
    this.selected = this.reached = null;
  }

  // The model's thoughts are open while they are written, and folded before the answer
  thoughtBox() {
    if (!this.thoughts?.isConnected) {
      const words = say("thoughts");
      const summary = h("summary", { "aria-label": words, "data-words": words });
      this.thoughts = h("details.thoughts", summary);
      this.text.prepend(this.thoughts);
    }
    return this.thoughts;
  }

  foldThoughts(live) {
    const ended = this.thoughts && (!live || /<\/think>/.test(this.source));
    if (!this.thoughts || this.thoughts.dataset.ended === String(ended)) return;
    this.thoughts.dataset.ended = String(ended);
    this.thoughts.open = !ended;
  }

  grey(reached) {
    if (this.reached === reached) return;
    this.reached = reached;
    for (const token of this.text.querySelectorAll("[data-token]"))
      token.classList.toggle("later", Number(token.dataset.token) >= reached);
  }

  select(step) {
    if (this.selected === step) return;
    this.selected = step;
    this.text.querySelectorAll(".selected").forEach((token) => token.classList.remove("selected"));
    if (step >= 0)
      this.text
        .querySelectorAll(`[data-step="${step}"]`)
        .forEach((token) => token.classList.add("selected"));
  }

  element(unit, text) {
    const element = unit.special
      ? pill(unit)
      : unit.first === unit.last
        ? token(unit, text)
        : this.spread(unit);
    if (this.lane.tokens.slice(unit.first, unit.last + 1).some(({ forced }) => forced))
      element.classList.add("forced");
    return element;
  }

  // One character over several tokens: drawn once, with one hoverable underline segment per token
  spread(unit) {
    const parts = unit.last - unit.first + 1;
    return h(
      "span",
      {
        class: `token spread ${unit.proposers[0].classes} ${unit.state === "open" ? "unfinished" : ""}`,
        "data-step": unit.step,
      },
      unit.text,
      unit.proposers.map(({ classes }, i) =>
        h("i", {
          class: `segment ${classes}`,
          "data-token": unit.first + i,
          title: say("bytes_part", {
            bytes: spacedHex(this.lane.tokens[unit.first + i].bytes),
            part: i + 1,
            parts,
          }),
          style: `left:${(100 * i) / parts}%;width:${100 / parts}%`,
        }),
      ),
    );
  }
}

// Special tokens have no characters; they are shown as pills
function withSpecials(pieces, tokens) {
  const found = pieces.map((unit) => ({ ...unit, order: unit.first }));
  tokens.forEach(
    (one, i) =>
      one.special &&
      found.push({
        first: i,
        last: i,
        special: one.special,
        text: "",
        state: "ok",
        order: i + 0.5,
      }),
  );
  return found.sort((a, b) => a.order - b.order);
}

function token(unit, text) {
  const [{ classes, number }] = unit.proposers;
  const [stacked, open] = [STACKED.test(text) && "stacked", unit.state === "open" && "unfinished"];
  const element = h("span", {
    class: ["token", classes, stacked, open].filter(Boolean).join(" "),
    "data-number": number || null,
    "data-token": unit.first,
    "data-step": unit.step,
  });
  if (!open) addText(element, text);
  return element;
}

// Words are underlined, and the space before one is not: where a line ends it would hang behind the text
function addText(element, text) {
  const isIndentation = /^\s{2,}$/.test(text);
  const marked = (part) => (part === " " && (text.trim() || isIndentation) ? part : h("u", part));
  text.split("\n").forEach((line, i) => {
    if (i) element.append(h("span.newline", "\n"));
    line
      .split(/( )/)
      .forEach(
        (part) =>
          part && element.append(part === " " ? h("span.space", marked(part)) : marked(part)),
      );
  });
}

function pill(unit) {
  const name = unit.special.replace(/^<\|?|\|?>$/g, "");
  const shown = /^(im_end|eos|end.*|\/s|eot.*)$/.test(name) ? "end" : name;
  return h("span", {
    class: `end-pill ${unit.proposers[0].classes}`,
    "data-token": unit.first,
    "data-step": unit.step,
    "data-name": shown,
    title: `‹${name}›`,
  });
}

// One line: marker, underline sample, word and share of accepted tokens
export class Legend {
  constructor(host) {
    this.host = host;
  }

  // The lane's proposers with their shares in these steps; without a lane, the proposers of the default method
  draw(lane, steps) {
    const proposers = (lane ? lane.proposers : usualProposers).all;
    const counts = metrics.acceptedByProposer(steps);
    const kept = proposers.map(({ id }) => counts.get(id)?.length || 0);
    const all = kept.reduce((sum, count) => sum + count, 0);
    const key = JSON.stringify([proposers, all, kept]);
    if (key === this.key) return;
    this.key = key;
    this.host.replaceChildren(
      ...proposers.map((proposer, i) =>
        this.entry(proposer, all ? wholePercent(kept[i] / all) : ""),
      ),
      h(
        "span.legend-entry",
        { "data-place": TARGET.place, title: TARGET.sentence },
        markerSample(TARGET),
        say("unmarked"),
      ),
    );
  }

  entry(proposer, share) {
    const { id, place, label, sentence, classes } = proposer;
    return h(
      "span.legend-entry",
      {
        "data-place": place,
        "data-proposer": id,
        title: sentence,
      },
      markerSample(proposer),
      h("span", { class: `token ${classes}` }, h("u", label)),
      h("b", share),
    );
  }
}
