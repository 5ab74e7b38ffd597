// A candidate's evidence besides its probabilities: a router's weights, its experts' parts, and columns unknown to this page.

import { h, percent, say } from "../base/dom.js";
import { nameIn } from "../data/history.js";

const WEIGHTS = "router_weights";
const PARTS = "expert_contributions";
const NOT_LISTED = [WEIGHTS, PARTS, "residual_contribution", "twin"];

export const weightsOf = (node) => node.evidence[WEIGHTS] || null;
// The contrastive pair has the router's weights, but no expert has a part of its own in it
export const isFromPair = (node) => Boolean(weightsOf(node)) && !node.evidence[PARTS];
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;
const digits = (value) => String(Number(value.toPrecision(3)));

const experts = (lane, values, words) =>
  values.map((value, e) => `${lane.proposers.at(e).label} ${words(value)}`).join(", ");
const weightsLine = (lane, node) =>
  say("router_line", { experts: experts(lane, weightsOf(node), percent) });

// One bar, an expert's part in the hue of the proposer at its place
export function weightBar(lane, node) {
  const part = (weight, e) => {
    const { hue, number } = lane.proposers.at(e);
    return h("span", {
      class: `fill-${hue}`,
      "data-number": number || null,
      style: `width:${weight * 100}%`,
    });
  };
  return h(
    "span",
    {
      class: `expert-bar ${isFromPair(node) ? "hatched" : ""}`,
      role: "img",
      "aria-label": weightsLine(lane, node),
    },
    weightsOf(node).map(part),
  );
}

export const cardNote = (text) => h("div.card-note", text);

// The card's lines about a node, as elements
export function evidenceNotes(lane, step, node) {
  const { [PARTS]: parts, twin } = node.evidence;
  const notes = weightsOf(node) ? [weightBar(lane, node), cardNote(weightsLine(lane, node))] : [];
  if (parts)
    notes.push(cardNote(say("contribution_line", { experts: experts(lane, parts, signed) })));
  const other = twin && step.nodes[twin[0]];
  if (other && other !== node)
    notes.push(cardNote(say("twin_line", { token: `“${nameIn(lane, step.index, twin[0])}”` })));
  for (const [name, values] of Object.entries(node.evidence)) {
    if (NOT_LISTED.includes(name)) continue;
    notes.push(
      cardNote(
        say("evidence_line", {
          name: name.replaceAll("_", " "),
          values: values.map(digits).join(", "),
        }),
      ),
    );
  }
  return notes;
}
