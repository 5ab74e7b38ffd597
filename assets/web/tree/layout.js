// Places of the nodes of a draft tree: O(nodes), the same rule for 8 and 64, and independent of the result in phase 1.

import { bonusDelivered, deliveredPath, endOf, hasBonus } from "../data/history.js";

// Children of each node, best path score first, ties by token id
export function childrenOf(nodes) {
  const below = Map.groupBy(nodes.keys(), (i) => nodes[i].parent);
  return nodes.map((_, i) =>
    (below.get(i) || []).sort(
      (a, b) => nodes[b].score - nodes[a].score || nodes[a].token_id - nodes[b].token_id,
    ),
  );
}

const subtreeSize = (children, i) =>
  1 + children[i].reduce((sum, child) => sum + subtreeSize(children, child), 0);

// Node indices folded away with their subtrees, so that at most `most` rows remain
function folded(step, children, most, phase, opened) {
  const nodes = step.nodes;
  const keep = new Set([0, ...opened, ...(phase > 1 ? step.accepted_path : [])]);
  const hidden = new Set();
  const leaves = (i) => {
    const shown = children[i].filter((child) => !hidden.has(child));
    return shown.length ? shown.reduce((sum, child) => sum + leaves(child), 0) : 1;
  };
  const holdsKept = (i) => keep.has(i) || children[i].some(holdsKept);
  const later = nodes
    .map((_, i) => i)
    .filter(
      (i) =>
        i && children[nodes[i].parent][0] !== i && !opened.has(nodes[i].parent) && !holdsKept(i),
    );
  later.sort((a, b) => nodes[a].score - nodes[b].score || b - a);
  let rows = leaves(0) + (phase === 3 ? 1 : 0);
  for (const i of later) {
    if (rows <= most) break;
    let ancestor = nodes[i].parent;
    while (ancestor > 0 && !hidden.has(ancestor)) ancestor = nodes[ancestor].parent;
    if (ancestor > 0) continue;
    rows -= leaves(i);
    hidden.add(i);
  }
  return hidden;
}

// Places for all visible nodes: {places: Map(index → {column, row}), pills: [{parent, members}], rows, bonus, end, last}: the
// accepted path ends at `end`, and its part in the answer at `last`
export function layoutTree(step, { phase = 3, most = Infinity, opened = new Set() } = {}) {
  const children = childrenOf(step.nodes);
  const hidden = folded(step, children, most, phase, opened);
  const end = endOf(step);
  const places = new Map();
  const pills = [];
  let used = 0;
  let bonus = null;
  const walk = (i, column, row) => {
    places.set(i, { column, row });
    used = Math.max(used, row);
    const shown = children[i].filter((child) => !hidden.has(child));
    shown.forEach((child, order) => walk(child, column + 1, order ? used + 1 : row));
    if (phase === 3 && i === end && hasBonus(step)) {
      bonus = { column: column + 1, row: shown.length ? used + 1 : row };
      used = Math.max(used, bonus.row);
    }
    const members = children[i].filter((child) => hidden.has(child));
    if (members.length) {
      const size = members.reduce((sum, child) => sum + subtreeSize(children, child), 0);
      pills.push({ parent: i, members, size });
    }
  };
  walk(0, 0, 0);
  return {
    places,
    pills,
    rows: used + 1,
    bonus,
    end,
    last: deliveredPath(step).pop() ?? 0,
    children,
  };
}

// State of a node: "root", "accepted", "cut" (right, but after the end), "refused" (its parent was kept), "not_reached", "bonus"
export function stateOf(step, i) {
  if (i === 0) return "root";
  if (i === "bonus") return bonusDelivered(step) ? "bonus" : "cut";
  const place = step.accepted_path.indexOf(i);
  if (place >= 0) return place < step.committed_ids.length ? "accepted" : "cut";
  const { parent } = step.nodes[i];
  return parent === 0 || step.accepted_path.includes(parent) ? "refused" : "not_reached";
}
