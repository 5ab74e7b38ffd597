// The draft tree as a nested list, for reading and screen readers: same order, same words as the cards.

import { h, percent, say } from "../base/dom.js";
import { bonusDelivered, endOf } from "../data/history.js";
import { TARGET } from "../data/methods.js";
import { reasonOf } from "./card.js";
import { childrenOf, stateOf } from "./layout.js";
import { markerSample } from "./marker.js";
import { nameOf, shown } from "./names.js";

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
