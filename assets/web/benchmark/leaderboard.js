// The leaderboard: all methods on the recorded prompts, each with trees of its own best size, by temperature and category, in any order.

import { h, milliseconds, number, rate, say } from "../base/dom.js";
import {
  OVERALL,
  categoryWords,
  cell,
  ratio,
  scrolling,
  shareWords,
  spread,
  tableOf,
  unequalRows,
} from "./table.js";
import { methodTitle, usualMethod } from "../data/methods.js";

const two = (value) => number(value, 2);
const between = (interval) => interval && spread(interval);
const methodOf = (row) => methodTitle(row.method);

// Columns by the field that they show and are sorted by: a title and a cell's words, the second ones smaller
const COLUMNS = {
  speed: [say("board_speed"), (row) => [rate(row.speed)]],
  speedup: [say("board_plain"), (row) => ratio(row.speedup, row.speedup_interval)],
  against: [
    say("board_against", { method: usualMethod.title }),
    (row) => ratio(row.against, row.against_interval),
  ],
  tau: [say("bench_tau"), (row) => [two(row.tau), between(row.tau_interval)]],
  draft_ms: [say("board_draft"), (row) => [milliseconds(row.draft_ms)]],
  verify_ms: [say("board_verify"), (row) => [milliseconds(row.verify_ms)]],
  other_ms: [say("board_other"), (row) => [milliseconds(row.other_ms)]],
  identical: [say("bench_same"), (row) => [shareWords(row.identical)]],
};

export class Leaderboard {
  // `on`: {redraw, pickTemperature: makes a choice, as the head of the results has it}
  constructor(on) {
    Object.assign(this, { on, results: null, category: OVERALL, order: "speed", down: true });
  }

  // The server's leaderboard: {environment, settings, rows, leads}, or null
  take(results) {
    Object.assign(this, { loaded: true, results, temperature: results?.rows[0]?.temperature });
  }

  // Rows of this temperature and category, sorted; rows without a number are last
  rows() {
    const { order, down, temperature, category } = this;
    const value = order === "method" ? methodOf : (row) => row[order];
    const compare = (a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === null || right === null) return (left === null) - (right === null);
      const difference = typeof left === "string" ? left.localeCompare(right) : left - right;
      return down ? -difference : difference;
    };
    return this.results.rows
      .filter((row) => row.temperature === temperature && row.category === category)
      .sort(compare);
  }

  // Buttons for the head of the results
  choices() {
    const valuesOf = (field) => [...new Set(this.results.rows.map((row) => row[field]))];
    const onchange = (event) => {
      this.category = event.target.value;
      this.on.redraw();
    };
    const options = valuesOf("category").map((category) => {
      const selected = category === this.category;
      return h("option", { value: category, selected }, categoryWords(category));
    });
    const label = { "data-control": "board-category", "aria-label": say("bench_category") };
    const temperatures = valuesOf("temperature");
    const setTemperature = (value) => (this.temperature = value);
    return [
      this.on.pickTemperature("board-temperature", temperatures, this.temperature, setTemperature),
      h("select", { ...label, onchange }, options),
    ];
  }

  body() {
    const rows = this.rows();
    return [
      h("p.board-verdict", { "data-result": "verdict" }, this.verdict()),
      scrolling(say("board"), this.table(rows)),
      h("p.muted.small", say("board_about", { method: usualMethod.title })),
      h("p.unequal-heads", unequalRows(rows.map((row) => row.method))),
    ];
  }

  // The fastest method over all prompts, and whether noise could explain the difference
  verdict() {
    const { temperature } = this;
    const lead = this.results.leads.find((each) => each.temperature === temperature);
    if (!lead) return "";
    const isLevel = lead.level.length > 0;
    return say(isLevel ? "board_level" : "board_ahead", {
      temperature,
      method: methodOf(lead),
      others: (isLevel ? lead.level : [lead.against]).map(methodTitle).join(", "),
      times: two(lead.times),
      against: methodTitle(lead.against),
      interval: between(lead.interval) || "–",
    });
  }

  table(rows) {
    const columns = Object.entries(COLUMNS);
    const heads = [
      this.head("method", say("bench_method")),
      ...columns.map(([id, [title]]) => this.head(id, title)),
    ];
    const category = categoryWords(this.category);
    const caption = say("board_table", { temperature: this.temperature, category });
    const drawRow = (row) => {
      const cells = columns.map(([id, [, words]]) => cell(id, words(row)));
      return h(
        "tr",
        { "data-method": row.method },
        h("th", { scope: "row" }, methodOf(row)),
        cells,
      );
    };
    return tableOf("board-table", caption, heads, rows.map(drawRow));
  }

  // A column's title, which sorts by the column
  head(id, title) {
    const order = this.order !== id ? "none" : this.down ? "descending" : "ascending";
    const arrow = { none: "", descending: " ↓", ascending: " ↑" }[order];
    const attributes = { type: "button", "data-sort": id, onclick: () => this.sort(id) };
    const sign = h("span", { "aria-hidden": "true" }, arrow);
    const button = h("button.board-sort", attributes, title, sign);
    return h("th", { scope: "col", "data-column": id, "aria-sort": order }, button);
  }

  sort(id) {
    Object.assign(this, { order: id, down: this.order === id ? !this.down : id !== "method" });
    this.on.redraw();
  }
}
