// The answer as tokens: every character once, underlined by who proposed it and tinted where it is of the step on screen;
// the model's own tokens have no mark. A character that is spread over several tokens has as many segments of underline.

import { h, percent, say, shares } from "../base/dom.js";
import { spacedHex, unitsOf } from "../base/pieces.js";
import { TARGET, usualProposers } from "../data/methods.js";
import { metrics } from "../data/metrics.js";
import { redrawNow } from "../page/machine.js";
import { markerSample } from "../tree/marker.js";

const FOLD_OVER = 1500;
// Dims all but one proposer. A lane may have any number of them, so the rule is written when it is needed
const ALL_BUT = ".jk-view :is(.answer-text .token, .tree .node:not(.root)):not(.by-PLACE):not(:has(.by-PLACE)) { opacity: 0.25; }";
const STACKED = /\p{M}{4}/u; // marks on marks, which would reach over the lines around them

const ascii = (byte) => byte < 0x80;

// Up to which of the first `count` tokens units stay whatever follows. Between two ASCII characters, other than a line
// feed after a carriage return, there is always a border of characters.
function settledBefore(tokens, start, count) {
  for (let i = count - 1; i > start; i -= 1) {
    const [before, after] = [tokens[i - 1], tokens[i]];
    const border = before.bytes.length && after.bytes.length && !before.special && !after.special
      && ascii(before.bytes[before.bytes.length - 1]) && ascii(after.bytes[0]) && after.bytes[0] !== 0x0a;
    if (border) return i;
  }
  return start;
}

export class AnswerView {
  constructor(host, { onPick, onPreview }) {
    this.host = host;
    this.onPick = onPick;
    this.onPreview = onPreview;
    this.drawn = [];
    this.unfolded = false;
    this.text = h("div", { class: "answer-text", role: "log", "aria-live": "off", id: "jk-answer-text" });
    this.tail = h("div", { class: "answer-end muted" });
    host.append(this.text, this.tail);
    for (const [name, pick] of [["pointerover", false], ["click", true], ["focusin", false]]) {
      this.text.addEventListener(name, (event) => {
        const token = event.target.closest && event.target.closest("[data-token]");
        if (!token || !this.lane) return;
        const chosen = this.lane.tokens[Number(token.dataset.token)];
        if (pick && chosen && chosen.step >= 0) this.onPick(chosen.step);
        else if (!pick) this.onPreview(chosen);
      });
    }
    this.text.addEventListener("pointerleave", () => this.onPreview(null));
  }

  // Shows the first `count` tokens of a lane; `live` means more may come; `selected` is the step shown elsewhere
  draw(lane, count, { live, selected, tail }) {
    const start = this.foldedBefore(count);
    if (this.lane !== lane || this.start !== start) {
      this.text.replaceChildren();
      this.drawn = [];
      this.lane = lane;
      this.start = start;
      this.count = start;
      if (start) this.text.append(this.unfoldButton(start));
    }
    const from = settledBefore(lane.tokens, start, Math.min(this.count, count));
    this.count = count;
    const tokens = lane.tokens.slice(from, count);
    const pieces = unitsOf(tokens);
    const wanted = this.withSpecials(pieces, tokens).map((unit) => this.describe(unit, tokens, from, live));
    this.patch(wanted, from);
    this.select(selected);
    this.tail.textContent = tail || "";
  }

  // How many of the oldest tokens are folded away
  foldedBefore(count) {
    return !this.unfolded && count > FOLD_OVER ? count - FOLD_OVER : 0;
  }

  unfoldButton(count) {
    return h("button", { class: "plain-button", onclick: () => {
      this.unfolded = true;
      this.lane = null;
      redrawNow();
    } }, say("earlier_tokens", { n: count }));
  }

  // Special tokens have no characters; they stand as pills where they came
  withSpecials(pieces, tokens) {
    const found = pieces.map((unit) => ({ ...unit, order: unit.first }));
    tokens.forEach((token, i) => token.special && found.push({ first: i, last: i, special: token.special, text: "",
      state: "ok", order: i + 0.5 }));
    return found.sort((a, b) => a.order - b.order);
  }

  describe(unit, tokens, start, live) {
    const state = unit.state === "open" ? (live ? "open" : "bad") : unit.state;
    const proposers = tokens.slice(unit.first, unit.last + 1).map((token) => token.proposer);
    const key = `${start + unit.first}-${start + unit.last}|${unit.text}|${state}|${unit.special || ""}`;
    return { ...unit, state, proposers, key, first: start + unit.first, last: start + unit.last,
      step: tokens[unit.first].step };
  }

  // Units of tokens before `from` stay; the others become `wanted`
  patch(wanted, from) {
    let kept = this.drawn.length;
    while (kept && this.drawn[kept - 1].last >= from) kept -= 1;
    let same = 0;
    while (same < wanted.length && wanted[same].key === (this.drawn[kept + same] || {}).key) same += 1;
    for (const unit of this.drawn.splice(kept + same)) unit.element.remove();
    for (const unit of wanted.slice(same)) {
      unit.element = unit.special ? this.pill(unit) : unit.first === unit.last ? this.token(unit) : this.spread(unit);
      this.text.append(unit.element);
      this.drawn.push(unit);
    }
  }

  select(step) {
    for (const unit of this.drawn) {
      const selected = unit.step === step && step >= 0;
      if (Boolean(unit.selected) !== selected) unit.element.classList.toggle("selected", selected);
      unit.selected = selected;
    }
  }

  token(unit) {
    const [{ classes, number }] = unit.proposers;
    const token = h("span", { class: `token ${classes}`, "data-number": number || null, "data-token": unit.first,
      "data-step": unit.step });
    if (STACKED.test(unit.text)) token.classList.add("stacked");
    if (unit.state === "open") token.classList.add("unfinished");
    else this.addText(token, unit.text);
    return token;
  }

  // Words are underlined, and the space before one is not: where a line ends it would hang behind the text
  addText(token, text) {
    const marked = (part) => (part === " " && text.trim() ? part : h("u", null, part));
    text.split("\n").forEach((line, i) => {
      if (i) token.append(h("span", { class: "newline" }, "\n"));
      line.split(/( )/).forEach((part) => part && token.append(part === " " ? h("span", { class: "space" }, marked(part)) : marked(part)));
    });
  }

  // One character over several tokens: drawn once, with one hoverable underline segment per token
  spread(unit) {
    const count = unit.last - unit.first + 1;
    const shared = h("span", { class: `token spread ${unit.proposers[0].classes} ${unit.state === "open" ? "unfinished" : ""}`, "data-step": unit.step });
    if (unit.state !== "open") shared.append(unit.text);
    for (let i = 0; i < count; i += 1) {
      const bytes = spacedHex(this.lane.tokens[unit.first + i].bytes);
      shared.append(h("i", { class: `segment ${unit.proposers[i].classes}`, "data-token": unit.first + i,
        title: say("bytes_part", { bytes, part: i + 1, parts: count }),
        style: `left:${(100 * i) / count}%;width:${100 / count}%` }));
    }
    return shared;
  }

  pill(unit) {
    const name = unit.special.replace(/^<\|?|\|?>$/g, "");
    const shown = /^(im_end|eos|end.*|\/s|eot.*)$/.test(name) ? "end" : name;
    return h("span", { class: `end-pill ${unit.proposers[0].classes}`, "data-token": unit.first, "data-step": unit.step,
      "data-name": shown, title: `‹${name}›` });
  }
}

// One line: marker, underline sample, word and share of accepted tokens; pointing at one dims what others proposed
export class Legend {
  constructor(host) {
    this.host = host;
    this.dimmed = new CSSStyleSheet();
    document.adoptedStyleSheets.push(this.dimmed);
    host.addEventListener("pointerover", ({ target }) => this.dim(target.closest("[data-place]")?.dataset.place));
    host.addEventListener("pointerleave", () => this.dim());
  }

  dim(place) {
    this.dimmed.replaceSync(place === undefined ? "" : ALL_BUT.replaceAll("PLACE", place));
  }

  // The lane's proposers with what they brought in these steps; without a lane those of the usual method
  draw(lane, steps) {
    const proposers = (lane ? lane.proposers : usualProposers).all;
    const counts = metrics.acceptedByProposer(steps);
    const whole = shares(proposers.map(({ id }) => counts[id] || 0));
    const key = JSON.stringify([proposers, steps.length ? whole : null]);
    if (key === this.key) return;
    this.key = key;
    this.host.replaceChildren(...proposers.map((proposer, i) => this.entry(proposer, steps.length ? `${whole[i]} %` : "")),
      h("span", { class: "legend-entry", "data-place": TARGET.place, title: TARGET.sentence }, say("unmarked")));
  }

  entry(proposer, share) {
    const { id, place, label, sentence, classes } = proposer;
    return h("span", { class: "legend-entry", "data-place": place, "data-proposer": id, title: sentence }, markerSample(proposer),
      h("span", { class: `token ${classes}` }, h("u", null, label)), h("b", null, share));
  }
}

// The sentence under a hovered token
export function tokenLine(lane, token) {
  const parts = [token.proposer.label];
  if (token.step < 0) parts.push(say("token_line_first"));
  else if (token.node < 0) parts.push(say("token_line_target", { step: token.step + 1 }));
  else {
    const node = lane.steps[token.step].nodes[token.node];
    parts.push(say("token_line", { step: token.step + 1, level: token.level }),
      `${say("draft_bar")} ${percent(node.draft_prob)}`, `${say("target_bar")} ${percent(node.target_prob)}`);
  }
  return parts.join(" · ");
}
