// The benchmark's table: one row for each category and method, every number as the report computed it.

import { given, h, number, rate, say } from "../base/dom.js";
import { methodTitle, unequalHeads } from "../data/methods.js";

export const OVERALL = "overall";
// As in the report: an interval of fewer prompts has little meaning
const FEWEST_ANSWERS = 8;

// The title of a method, with its size for a fixed tree; "… · auto" has only the method's title
export function laneWords(lane) {
  const [method, size] = lane.split(" · ");
  const words = methodTitle(method);
  return size && size !== "auto" ? `${words} · ${size}` : words;
}

// As for a race, of the methods with heads of their own among these
export function unequalRows(methods) {
  const { minutes } = given.benchmarkForm;
  return unequalHeads([...new Set(methods)].map((name) => [methodTitle(name), minutes[name]]));
}

export const categoryWords = (category) =>
  category === OVERALL ? say("bench_overall") : category.replaceAll("_", " ");
export const temperaturesOf = (results) => [
  ...new Set(results.groups.map((group) => group.temperature)),
];

// Groups of one temperature as {category, lane, plain, group}: all prompts first, then each category
export function rowsOf(results, temperature) {
  const here = results.groups.filter((group) => group.temperature === temperature);
  const plainOf = ({ baseline, category }) =>
    here.find((other) => other.lane === baseline && other.category === category) || null;
  return here
    .filter((group) => group.lane !== group.baseline)
    .map((group) => ({ category: group.category, lane: group.lane, group, plain: plainOf(group) }));
}

export const times = (value) => say("bench_times", { n: number(value, 2) });
export const spread = ([low, high], words = (value) => number(value, 2)) =>
  say("bench_spread", { low: words(low), high: words(high) });

function speedCell(group) {
  if (!group?.tokens_per_second) return ["–"];
  const [low, , high] = group.tokens_per_second;
  return [rate(group.speed), group.num_runs >= FEWEST_ANSWERS && spread([low, high], rate)];
}

// Files of older versions hold such intervals
export const intervalOf = (group) =>
  group.num_runs >= FEWEST_ANSWERS ? group.speedup_interval : null;

export const ratio = (value, interval) =>
  value === null ? ["–"] : [times(value), interval && spread(interval)];

// Rounded down, so that a single difference never reads 100 %
export const shareWords = (share) =>
  share === null ? "–" : share === 1 ? "100 %" : `${number(Math.floor(share * 1000) / 10, 1)} %`;

// Words of a cell and smaller ones below them, by column
const COLUMNS = {
  method: ({ lane }) => [laneWords(lane)],
  prompts: ({ group }) => [String(group.num_runs)],
  plain: ({ plain }) => speedCell(plain),
  lane: ({ group }) => speedCell(group),
  speedup: ({ group }) => ratio(group.speedup, intervalOf(group)),
  tau: ({ group }) => [group.tau === null ? "–" : number(group.tau, 2)],
  same: ({ group }) => [shareWords(group.identical)],
};

export function cell(column, [words, small]) {
  const interval = small && h("span.bench-spread", small);
  return h("td", { "data-column": column }, h("span.bench-value", words), interval);
}

// A table that scrolls sideways where it is wider than the page
export const scrolling = (label, content) =>
  h("div.bench-scroll", { tabindex: 0, role: "region", "aria-label": label }, content);

export function tableOf(kind, caption, heads, rows) {
  const parts = [h("caption", caption), h("thead", h("tr", heads)), h("tbody", rows)];
  return h("table", { class: `bench-table ${kind} tabular` }, parts);
}

export function benchmarkTable(results, temperature) {
  const heads = ["category", ...Object.keys(COLUMNS)].map((column) =>
    h("th", { scope: "col", "data-column": column }, say(`bench_${column}`)),
  );
  const rows = rowsOf(results, temperature).map((row) =>
    h(
      "tr",
      { "data-category": row.category, "data-lane": row.lane },
      h("th", { scope: "row" }, categoryWords(row.category)),
      Object.entries(COLUMNS).map(([column, of]) => cell(column, of(row))),
    ),
  );
  return tableOf("", say("bench_table", { temperature }), heads, rows);
}
