// A step in rows: for narrow screens a ladder, the accepted path with rejected candidates next to it; for screen readers the
// complete tree, nested.

import { h, percent, say } from "../base/dom.js";
import { endOf, hasBonus, nameIn, proposerIn, shown } from "../data/history.js";
import { reasonOf } from "./card.js";
import { childrenOf, stateOf } from "./layout.js";
import { markerSample } from "./marker.js";

const MOST_CHIPS = 3;

const nameShown = (...node) => shown(nameIn(...node));
const sampleOf = (lane, index, i, phase, state) =>
  markerSample(proposerIn(lane, index, i), phase === 3 && i !== "bonus" && state !== "accepted");

// In phase 1 a row holds a level's best guesses, in the order of the draft's score; then kept ones come first
export function ladder(lane, index, phase, card) {
  const step = lane.steps[index];
  const token = (i) => {
    const state = phase === 1 ? "proposed" : stateOf(step, i);
    return h(
      "button",
      {
        class: `rung-token ${state}`,
        "data-node": i,
        onclick: (event) => card.pin(i, event.currentTarget),
      },
      sampleOf(lane, index, i, phase, state),
      h("bdi", nameShown(lane, index, i)),
    );
  };
  const rung = (sign, nodes, more) =>
    h(
      "li.rung",
      h("span.muted.tabular", sign),
      nodes.slice(0, MOST_CHIPS).map(token),
      more && h("span.muted.small", more),
    );
  const level = (nodes, depth) =>
    rung(depth + 1, nodes, nodes.length > MOST_CHIPS && `+${nodes.length - MOST_CHIPS}`);
  const levels = [];
  if (phase === 1) {
    step.nodes.forEach((node, i) => i && (levels[node.depth - 1] ??= []).push(i));
    levels.forEach((nodes) => nodes.sort((a, b) => step.nodes[b].score - step.nodes[a].score));
  } else {
    const children = childrenOf(step.nodes);
    [0, ...step.accepted_path].forEach((parent, depth) => {
      const kept = step.accepted_path[depth];
      if (children[parent].length)
        levels.push(children[parent].toSorted((a, b) => (b === kept) - (a === kept)));
    });
  }
  return h(
    "ol.ladder",
    {
      "data-step": index,
      "aria-label": say("draft_tree"),
      style: `--rungs:${lane.deepest + 1}`, // as many in all phases and steps, so that nothing below moves
    },
    levels.map(level),
    phase > 1 && hasBonus(step) && rung("+", ["bonus"], say("target")),
  );
}

export function treeList(lane, index, phase) {
  const step = lane.steps[index];
  const children = childrenOf(step.nodes);
  if (phase === 3 && hasBonus(step)) children[endOf(step)].push("bonus");
  const about = (node, label) =>
    `${label} · ${say("draft_bar")} ${percent(node.draft_prob)}` +
    (phase > 1 ? ` · ${say("target_bar")} ${percent(node.target_prob)} · ` : "");
  const item = (i) => {
    const node = step.nodes[i]; // none for the target's own token
    const state = phase === 1 ? "proposed" : stateOf(step, i);
    return h(
      "li",
      h(
        "div",
        { class: `list-line ${phase === 3 ? state : ""}` },
        sampleOf(lane, index, i, phase, state),
        h("bdi.mono.list-token", nameShown(lane, index, i)),
        " ",
        h(
          "span.muted",
          node && about(node, proposerIn(lane, index, i).label),
          phase > 1 && `${say(`state_${state}`)}. ${reasonOf(lane, step, i)}`,
        ),
      ),
      node && list(children[i]),
    );
  };
  const list = (members) => (members.length ? h("ul", members.map(item)) : null);
  return h("div.tree-list", list(children[0]));
}
