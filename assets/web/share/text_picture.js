// The start of an answer as coloured text in a picture. The browser lays it out as html first, whatever the script, and its
// places are read off: an underline for each guessed token, and each line as one text, so that letters join and turn as they do.

import { h, s } from "../base/dom.js";
import { unitsOf } from "../base/pieces.js";
import { drawing } from "./drawing.js";

const MOST_TOKENS = 400;
const FIRST_STRONG = /\p{L}/u;
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

const runsLeft = (paragraph) => RIGHT_TO_LEFT.test((FIRST_STRONG.exec(paragraph) || [""])[0]);

// Every character of an element with its place, line breaks without one: [{text, box}]
function characters(span) {
  const found = [];
  const node = span.firstChild;
  if (!node) return found;
  const range = document.createRange();
  let at = 0;
  for (const text of node.data) {
    range.setStart(node, at);
    at += text.length;
    range.setEnd(node, at);
    found.push({ text, box: text === "\n" ? null : range.getClientRects()[0] || null });
  }
  return found;
}

// The lines as they were broken: their text, edges, and whether their paragraph runs from right to left
function linesOf(spans, top, height) {
  const lines = [];
  let paragraph = "";
  let begun = 0;
  const settle = () => {
    lines.slice(begun).forEach((line) => line && (line.rtl = runsLeft(paragraph)));
    begun = lines.length;
    paragraph = "";
  };
  for (const { text, box } of spans.flatMap(characters)) {
    if (text === "\n") settle();
    else paragraph += text;
    if (!box) continue;
    const number = Math.floor((box.top + box.height / 2 - top) / height);
    lines[number] = lines[number] || { text: "", left: Infinity, right: -Infinity };
    const line = lines[number];
    line.text += text;
    Object.assign(line, { left: Math.min(line.left, box.left), right: Math.max(line.right, box.right) });
  }
  settle();
  return lines;
}

function underline(proposer, left, right, y) {
  const path = (at) => s("path", { class: `underline ${proposer.classes}`, d: `M${left},${at}H${right}` });
  return proposer.hue === "1" ? [path(y - 1.75), path(y + 1.75)] : [path(y)];
}

// The underline of one guessed token's place on one line; a character over several tokens is cut into equal parts
function marks(proposers, rect, x, y) {
  return proposers.flatMap((proposer, i) => {
    if (proposer.hue === "target") return [];
    const part = rect.width / proposers.length;
    const left = rect.left + i * part - x;
    return [...underline(proposer, left, left + part, rect.bottom - y + 1), proposer.number
      ? s("text", { class: "token-number", x: left + part - 4, y: rect.top - y + 7 }, proposer.number) : null];
  });
}

// The first tokens of a lane in a box of whole lines; `stage` is a place on the page
export function textInBox(stage, lane, { x, y, width, height, size, lineHeight }) {
  const most = Math.floor(height / lineHeight);
  const tokens = lane.tokens.slice(0, MOST_TOKENS);
  const pieces = unitsOf(tokens);
  const spans = pieces.map((unit) => h("span", null, drawing.fit(unit.text)));
  const probe = h("span", { class: "probe" });
  const host = h("div", { class: "stage-text", style: `width:${width}px;font-size:${size}px;line-height:${lineHeight}px` }, probe, spans);
  stage.append(host);
  const around = host.getBoundingClientRect();
  const baseline = probe.getBoundingClientRect().bottom - around.top;
  const group = s("g", { transform: `translate(${x} ${y})` });
  const lines = linesOf(spans, around.top, lineHeight);
  const more = lines.length > most || tokens.length < lane.tokens.length;
  const shown = more ? Math.min(most - 1, lines.length) : most;
  spans.forEach((span, i) => {
    const proposers = tokens.slice(pieces[i].first, pieces[i].last + 1).map((token) => token.proposer);
    for (const rect of span.getClientRects()) {
      const hanging = span.getClientRects().length > 1 && rect.width < size / 2; // a space where its line was broken
      if (rect.width && !hanging && rect.bottom - around.top <= shown * lineHeight) {
        group.append(...marks(proposers, rect, around.left, around.top).filter(Boolean));
      }
    }
  });
  lines.slice(0, shown).forEach((line, i) => line && group.append(s("text", { class: "ink answer-line", direction: line.rtl ? "rtl" : "ltr",
    x: (line.rtl ? line.right : line.left) - around.left, y: i * lineHeight + baseline, style: `font-size:${size}px` }, line.text)));
  if (more) group.append(s("text", { class: "muted", x: 0, y: shown * lineHeight + baseline, style: `font-size:${size}px` }, "…"));
  host.remove();
  return group;
}
