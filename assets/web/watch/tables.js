// Mask and plot as tables: the same facts for reading, and for screen readers.

import { h, number, rate, say } from "../base/dom.js";
import { pathTo } from "../data/history.js";
import { metrics } from "../data/metrics.js";
import { nameOf } from "../tree/names.js";

const MOST_ROWS = 12; // of each lane

export function table(caption, heads, rows) {
  return h("table", { class: "plain-table" }, caption ? h("caption", { class: "muted" }, caption) : null,
    h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, i) => h(i ? "td" : "th", i ? null : { scope: "row" },
      h("bdi", null, cell)))))));
}

// For each candidate what it may look at: the text so far and its own ancestors
export function maskTable(lane, index) {
  const { nodes } = lane.steps[index];
  const name = (i) => nameOf(lane, nodes[i].token_id, nodes[i].piece);
  const rows = nodes.slice(1).map((node, at) => [String(at + 1), name(at + 1), String(node.depth),
    ["…", ...pathTo(nodes, node.parent).map(name)].join(" ")]);
  return table(say("mask_hint"), ["table_candidate", "table_token", "table_level", "table_sees"].map((key) => say(key)), rows);
}

// Tokens and speed of each lane at a few moments of its own clock; `series` holds {lane, steps}
export function plotTable(series, caption) {
  const rows = series.flatMap(({ lane, steps }) => {
    const every = Math.max(1, Math.ceil(steps / MOST_ROWS));
    const picked = Array.from({ length: steps }, (_, i) => i).filter((i) => i === steps - 1 || i % every === every - 1);
    return picked.map((i) => [lane.title, number(lane.seconds[i], 1), String(lane.counts[i]),
      rate(metrics.smoothSpeed(lane, i))]);
  });
  return table(caption, [say("table_lane"), say("plot_x"), say("plot_y"), say("plot_rate")], rows);
}
