// Three panels for the step on screen: who may look at whom, how the router weighed the experts, what the budget chose.

import { counted, h, milliseconds, number, percent, rate, s, say, table } from "../base/dom.js";
import { nameOf, pathTo } from "../data/history.js";
import { isFromPair, weightBar, weightsOf } from "../tree/evidence.js";

const SIZE = 220;

// For each candidate what it may look at: the text so far and its own ancestors
function maskTable(lane, index) {
  const { nodes } = lane.steps[index];
  const name = (i) => nameOf(lane, nodes[i].token_id, nodes[i].piece);
  const rows = nodes.slice(1).map((node, at) => [String(at + 1), name(at + 1), String(node.depth),
    ["…", ...pathTo(nodes, node.parent).map(name)].join(" ")]);
  return table(say("mask_hint"), ["table_candidate", "table_token", "table_level", "table_sees"].map((key) => say(key)), rows);
}

export class MaskPanel {
  constructor(host, onHover) {
    this.host = host;
    this.onHover = onHover;
  }

  draw(lane, index) {
    if (this.host.dataset.table) {
      this.svg = null;
      this.host.replaceChildren(maskTable(lane, index));
      return;
    }
    const { nodes } = lane.steps[index];
    const cell = SIZE / nodes.length;
    const svg = s("svg", { class: "mask", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": say("mask_hint"),
      "data-rows": nodes.length });
    nodes.forEach((node, row) => {
      const line = s("g", { class: "mask-row", "data-row": row },
        s("rect", { class: "mask-reach", x: 0, y: row * cell, width: SIZE, height: cell }));
      for (let column = row; column >= 0; column = nodes[column].parent) {
        line.append(s("rect", { class: column === row ? "self" : "seen", x: column * cell + 0.5, y: row * cell + 0.5,
          width: Math.max(1, cell - 1), height: Math.max(1, cell - 1) }));
      }
      line.addEventListener("pointerenter", () => this.light(lane, index, row));
      svg.append(line);
    });
    svg.addEventListener("pointerleave", () => this.light(lane, index, null));
    this.words = h("p", { class: "muted" }, say("mask_hint"));
    this.host.replaceChildren(svg, this.words);
    this.svg = svg;
  }

  light(lane, index, row) {
    this.mark(row);
    this.onHover(row);
    if (row === null) {
      this.words.textContent = say("mask_hint");
      return;
    }
    const { nodes } = lane.steps[index];
    const path = pathTo(nodes, row).map((i) => nameOf(lane, nodes[i].token_id, nodes[i].piece));
    this.words.textContent = say("mask_row", { row, columns: ["…", ...path].join(" ") });
  }

  mark(row) {
    if (!this.svg) return;
    this.svg.querySelectorAll(".mask-row").forEach((line) => line.classList.toggle("lit", Number(line.dataset.row) === row));
  }
}

// The router's weights at the first candidate of each level: what the draft's favourite path saw
export function drawRouter(host, lane, index) {
  const { nodes } = lane.steps[index];
  const levels = [];
  nodes.forEach((node) => {
    const best = levels[node.depth];
    if (node.depth && weightsOf(node) && (!best || node.score > best.score)) levels[node.depth] = node;
  });
  const shown = levels.filter(Boolean);
  const hint = shown.some(isFromPair) ? `${say("router_hint")}; ${say("router_hatched")}` : say("router_hint");
  const rows = shown.map((node) => h("div", { class: "router-row" },
    h("span", { class: "muted" }, say("router_level", { level: node.depth })), weightBar(lane, node),
    h("span", { class: "tabular" }, weightsOf(node).map(percent).join(" · "))));
  host.replaceChildren(...(rows.length ? rows : [h("p", null, say("router_none"))]),
    h("p", { class: "muted" }, hint));
}

export function drawBudget(host, lane, index) {
  const step = lane.steps[index];
  const { plan } = step;
  const times = { draft: milliseconds(step.draft_ms), verify: milliseconds(step.verify_ms), other: milliseconds(step.other_ms) };
  const values = { candidates: counted("candidate", step.nodes.length - 1), levels: counted("level", plan.levels), ...times };
  let sentence = say("no_draft");
  if (step.nodes.length > 1 && plan.expected_tokens !== null) {
    sentence = say("budget_auto", { ...values, tokens: number(plan.expected_tokens, 1), ms: milliseconds(plan.expected_ms) });
  } else if (step.nodes.length > 1) sentence = plan.why || say("budget_fixed", values);
  const sizes = plan.curve.map(([nodes, speed]) => say("budget_size", { candidates: counted("candidate", nodes - 1), speed: rate(speed) }));
  host.replaceChildren(h("p", null, sentence), h("p", null, sizes.length > 1 ? say("budget_sizes", { sizes: sizes.join(", ") }) : ""),
    h("p", { class: "muted tabular" }, say("time_split", times)));
}
