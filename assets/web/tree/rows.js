// A step in rows. The ladder is for narrow screens: the kept path from top to bottom, a row a level, with what was refused there beside
// it. The list is for reading and screen readers: the whole tree, nested, in the same order and the same words as the cards.

import { h, percent, say } from "../base/dom.js";
import { bonusDelivered, depthOf, endOf, nameOf, shown } from "../data/history.js";
import { TARGET } from "../data/methods.js";
import { reasonOf } from "./card.js";
import { childrenOf, stateOf } from "./layout.js";
import { markerSample } from "./marker.js";

const MOST_CHIPS = 4;

// In phase 1 a row holds a level's best guesses, in the order of the draft's score; then kept ones come first
export function ladder(lane, index, phase, card) {
  const step = lane.steps[index];
  const token = (i, state) => {
    const node = step.nodes[i];
    return h("button", { class: `rung-token ${state}`, "data-node": i, onclick: (event) => card.pin(i, event.currentTarget) },
      markerSample(lane.proposers.of(node), phase === 3 && state !== "accepted"), h("bdi", null, shown(nameOf(lane, node.token_id, node.piece))));
  };
  const row = (level, nodes) => {
    const more = nodes.length - MOST_CHIPS;
    return h("li", { class: "rung" }, h("span", { class: "muted tabular" }, String(level)),
      nodes.slice(0, MOST_CHIPS).map((i) => token(i, phase === 1 ? "proposed"
      : stateOf(step, i))), more > 0 ? h("span", { class: "muted small" }, `+${more}`) : null);
  };
  const rows = [];
  if (phase === 1) {
    const levels = Array.from({ length: depthOf(step) }, () => []);
    step.nodes.forEach((node, i) => i && levels[node.depth - 1].push(i));
    levels.forEach((nodes, depth) => rows.push(row(depth + 1, nodes.sort((a, b) => step.nodes[b].score - step.nodes[a].score))));
  } else {
    const children = childrenOf(step.nodes);
    [0, ...step.accepted_path].forEach((parent, depth) => {
      const kept = step.accepted_path[depth];
      const refused = children[parent].filter((i) => i !== kept);
      if (children[parent].length) rows.push(row(depth + 1, kept === undefined ? refused : [kept, ...refused]));
    });
    rows.push(h("li", { class: "rung" }, h("span", { class: "muted" }, "+"), h("button", { class: `rung-token ${bonusDelivered(step) ? "accepted" : "cut"}`,
      "data-node": "bonus", onclick: (event) => card.pin("bonus", event.currentTarget) }, markerSample(TARGET),
    h("bdi", null, shown(nameOf(lane, step.bonus_token_id, step.bonus_piece)))), h("span", { class: "muted small" }, say("target"))));
  }
  return h("ol", { class: "ladder", "data-step": index, "aria-label": say("draft_tree") }, rows);
}

export function treeList(lane, index, phase) {
  const step = lane.steps[index];
  const children = childrenOf(step.nodes);
  const item = (i) => {
    const node = step.nodes[i];
    const proposer = lane.proposers.of(node);
    const state = phase === 1 ? "proposed" : stateOf(step, i);
    const line = h("div", { class: `list-line ${phase === 3 ? state : ""}` },
      markerSample(proposer, phase === 3 && state !== "accepted"),
      h("bdi", { class: "mono list-token" }, shown(nameOf(lane, node.token_id, node.piece))), " ",
      h("span", { class: "muted" }, `${proposer.label} · ${say("draft_bar")} ${percent(node.draft_prob)}`,
        phase > 1 ? ` · ${say("target_bar")} ${percent(node.target_prob)} · ${say(`state_${state}`)}. ${reasonOf(lane, step, i)}` : ""));
    return h("li", null, line, list(children[i], i));
  };
  const end = endOf(step);
  const bonus = () => h("li", null,
    h("div", { class: `list-line ${bonusDelivered(step) ? "" : "cut"}` }, markerSample(TARGET),
    h("bdi", { class: "mono list-token" }, shown(nameOf(lane, step.bonus_token_id, step.bonus_piece))), " ",
    h("span", { class: "muted" }, bonusDelivered(step) ? `${say("state_bonus")}. ${say("why_bonus")}` : `${say("state_cut")}. ${say("why_bonus_cut")}`)));
  const list = (members, parent) => {
    const added = phase === 3 && parent === end ? bonus() : null;
    return members.length || added ? h("ul", null, members.map(item), added) : null;
  };
  return h("div", { class: "tree-list" }, list(children[0], 0));
}
