// The mask of a tree as a table: a row for each node, filled where it may look at the column's node.

import { h, say } from "../base/dom.js";
import { pathTo } from "../data/history.js";

// The nodes to which node `i` attends: itself and its ancestors
export const seenBy = (nodes, i) => new Set([0, ...pathTo(nodes, i)]);

export const maskCell = (seen, self) =>
  h("td", { class: seen ? (self ? "self" : "seen") : null }, h("span.voice", seen ? "✓" : "–"));

// `cell(i, j)` is row i's cell under column j, `row(i)` has the row's own attributes
export const maskTable = (names, cell, row = () => null) =>
  h(
    "table.mask-table",
    h(
      "thead",
      h(
        "tr",
        h("th.muted.small", { scope: "col" }, say("mask_column")),
        names.map((name) => h("th", { scope: "col" }, h("bdi.mono", name))),
      ),
    ),
    h(
      "tbody",
      names.map((name, i) =>
        h(
          "tr",
          { "data-row": i, ...row(i) },
          h("th", { scope: "row" }, h("bdi.mono", name)),
          names.map((_, j) => cell(i, j)),
        ),
      ),
    ),
  );
