// Three panels for the step on screen: the attention mask, the router's weights, and the choice of the tree's size.

import { counted, h, milliseconds, number, percent, rate, say } from "../base/dom.js";
import { nameIn } from "../data/history.js";
import { isFromPair, weightBar, weightsOf } from "../tree/evidence.js";
import { maskCell, maskTable, seenBy } from "../tree/mask.js";

// The attention of each candidate: the text so far and its own ancestors
export function drawMask(host, lane, index) {
  const { nodes } = lane.steps[index];
  const names = nodes.map((_, i) => nameIn(lane, index, i));
  const seen = nodes.map((_, i) => seenBy(nodes, i));
  host.replaceChildren(
    h("p.muted", say("mask_hint")),
    maskTable(names, (i, j) => maskCell(seen[i].has(j), i === j)),
  );
}

// The router's weights at the best candidate of each level: the draft's best path
export function drawRouter(host, lane, index) {
  const { nodes } = lane.steps[index];
  const levels = [];
  nodes.forEach((node) => {
    const best = levels[node.depth];
    if (node.depth && weightsOf(node) && (!best || node.score > best.score))
      levels[node.depth] = node;
  });
  const shown = levels.filter(Boolean);
  const hint = shown.some(isFromPair)
    ? `${say("router_hint")}; ${say("router_hatched")}`
    : say("router_hint");
  const rows = shown.map((node) =>
    h(
      "div.router-row",
      h("span.muted", say("router_level", { level: node.depth })),
      weightBar(lane, node),
      h("span.tabular", weightsOf(node).map(percent).join(" · ")),
    ),
  );
  host.replaceChildren(...(rows.length ? rows : [h("p", say("router_none"))]), h("p.muted", hint));
}

export function drawBudget(host, lane, index) {
  const step = lane.steps[index];
  const { plan } = step;
  const times = {
    draft: milliseconds(step.draft_ms),
    verify: milliseconds(step.verify_ms),
    other: milliseconds(step.other_ms),
  };
  const values = {
    candidates: counted("candidate", step.nodes.length - 1),
    levels: counted("level", plan.levels),
    ...times,
  };
  let sentence = say("no_draft");
  if (step.nodes.length > 1 && plan.expected_tokens !== null) {
    sentence = say("budget_auto", {
      ...values,
      tokens: number(plan.expected_tokens, 1),
      ms: milliseconds(plan.expected_ms),
    });
  } else if (step.nodes.length > 1) sentence = plan.why || say("budget_fixed", values);
  const sizes = plan.curve.map(([nodes, speed]) =>
    say("budget_size", { candidates: counted("candidate", nodes - 1), speed: rate(speed) }),
  );
  host.replaceChildren(
    h("p", sentence),
    h("p", sizes.length > 1 ? say("budget_sizes", { sizes: sizes.join(", ") }) : ""),
    h("p.muted.tabular", say("time_split", times)),
  );
}
