// Stop 6: the mask of a seven-node tree, filled by hand, then shown in full next to the tree.

import { h, say } from "../../base/dom.js";
import { depthOf, nameOf, rootName } from "../../data/history.js";
import { button, buttons, filled, group, result } from "../controls.js";
import { pick, pruned, whole } from "../data.js";
import { maskCell, maskTable, seenBy } from "../../tree/mask.js";

const CANDIDATES = 6;

// A small tree with siblings, a path of three, and as few repeated tokens as can be
const chooseStep = (lane) =>
  pick(whole(lane), (step) => {
    const cut = pruned(step, CANDIDATES);
    const families = [...Map.groupBy(cut.nodes, (node) => node.parent).values()];
    const branching = families.filter((siblings) => siblings.length > 1).length;
    const names = new Set(cut.nodes.slice(1).map((node) => node.piece)).size;
    return (
      (3 - Math.abs(depthOf(cut) - 3)) * 4 +
      Math.min(branching, 2) * 3 +
      names / 2 +
      (cut.nodes.length === CANDIDATES + 1 ? 5 : 0)
    );
  });

export function maskStop(lesson) {
  const lane = lesson.greedy.drafted;
  const step = chooseStep(lane);
  const cut = pruned(step, CANDIDATES);
  const { nodes } = cut;
  const names = nodes.map((node, i) =>
    i ? nameOf(lane, node.token_id, node.piece) : rootName(lane, step.index),
  );
  const ancestors = nodes.map((_, i) => seenBy(nodes, i));
  // The row to fill: deepest of the nodes with a sibling
  const hasSibling = (i) => nodes.some((node, j) => j !== i && node.parent === nodes[i].parent);
  const worth = (i) => nodes[i].depth * 2 + (hasSibling(i) ? 3 : 0) + i / 100;
  const asked = pick([...nodes.keys()].slice(1), worth);
  let ticked = new Set(); // columns that were ticked when the row was last checked
  let full = false;
  let said = "";

  const tree = lesson.tree(() => ({ lane, step: cut, phase: 1, mark: full ? null : asked }));
  const host = h("div.mask-table-host", { onpointerleave: () => light(null) });
  const taskWords = say("mask_fill", { token: `“${names[asked]}”` });
  const task = h("p", { "data-result": "mask-task" }, taskWords);
  const sentence = result("mask", () => said);
  const isFull = () => full;
  const check = button("mask-check", say("mask_check_row"), judge, isFull);
  const showAll = () => ([full, said] = [true, say("mask_full")]);
  const show = button("mask-show", say("mask_show"), showAll, isFull);
  const clear = () => ([full, ticked, said] = [false, new Set(), ""]);
  const restart = button("mask-restart", say("mask_restart"), clear);

  const quoted = (members) => members.map((i) => `“${names[i]}”`).join(", ");

  function judge() {
    const wanted = ancestors[asked];
    ticked = new Set([...host.querySelectorAll(":checked")].map((box) => Number(box.dataset.cell)));
    const missing = [...wanted].filter((i) => !ticked.has(i));
    const extra = [...ticked].filter((i) => !wanted.has(i));
    full = !extra.length && !missing.length;
    if (extra.length) said = say("mask_extra", { tokens: quoted(extra) });
    else if (missing.length) said = say("mask_missing", { tokens: quoted(missing) });
    else said = `✓ ${say("mask_right")} ${say("mask_full")}`;
  }

  function light(i) {
    host
      .querySelectorAll("tr")
      .forEach((row) => row.classList.toggle("lit", Number(row.dataset.row) === i && full));
    tree.light(i === null ? [] : [...ancestors[i]]);
    if (!full || i === null) return;
    const { depth } = nodes[i];
    const siblings = [...nodes.keys()].filter((j) => j !== i && nodes[j].depth === depth);
    const nameFor = (j) => (j === i ? say("mask_self") : `“${names[j]}”`);
    const columns = [...ancestors[i]].map(nameFor).join(", ");
    const hidden = siblings.length ? say("mask_siblings", { tokens: quoted(siblings) }) : "";
    said = `${say("mask_lit", { row: `“${names[i]}”`, position: depth, columns })} ${hidden}`;
    sentence.draw();
  }

  function cell(i, j) {
    if (full) return maskCell(ancestors[i].has(j), i === j);
    if (i !== asked) return h("td");
    const words = say("mask_cell_name", { row: names[i], column: names[j] });
    const state = { "data-cell": j, checked: ticked.has(j), "aria-label": words };
    return h("td", h("input.mask-cell", { type: "checkbox", ...state }));
  }

  const row = (i) => ({
    class: i === asked && !full ? "asked" : null,
    tabindex: full ? 0 : null,
    onpointerenter: () => light(i),
    onfocus: () => light(i),
  });

  return {
    screen: [
      { element: task, draw: () => (task.hidden = full) },
      group("mask-columns")(
        filled(host, () => maskTable(names, cell, row)),
        tree,
      ),
      buttons(check, show, restart),
      sentence,
      lesson.stepLine(lane, step),
    ],
    demo: [show.click],
  };
}
