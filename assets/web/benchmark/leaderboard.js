// The leaderboard: all methods on the recorded prompts, each with trees of its own best size, by temperature and category, in any order.

import { h, milliseconds, number, rate, say } from "../base/dom.js";
import {
  OVERALL,
  categoryWords,
  cell,
  ratio,
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
    return this.results.rows
      .filter((row) => row.temperature === temperature && row.category === category)
      .sort((a, b) => {
        const [left, right] = [value(a), value(b)];
        if (left === null || right === null) return (left === null) - (right === null);
        return (
          (down ? -1 : 1) * (typeof left === "string" ? left.localeCompare(right) : left - right)
        );
      });
  }

  // Buttons for the head of the results
  choices() {
    const [temperatures, categories] = ["temperature", "category"].map((field) => [
      ...new Set(this.results.rows.map((row) => row[field])),
    ]);
    const select = h(
      "select",
      {
        "data-control": "board-category",
        "aria-label": say("bench_category"),
        onchange: (event) => {
          this.category = event.target.value;
          this.on.redraw();
        },
      },
      categories.map((category) =>
        h(
          "option",
          { value: category, selected: category === this.category },
          categoryWords(category),
        ),
      ),
    );
    return [
      this.on.pickTemperature(
        "board-temperature",
        temperatures,
        this.temperature,
        (value) => (this.temperature = value),
      ),
      select,
    ];
  }

  body() {
    const rows = this.rows();
    return [
      h("p.board-verdict", { "data-result": "verdict" }, this.verdict()),
      h(
        "div.bench-scroll",
        { tabindex: 0, role: "region", "aria-label": say("board") },
        this.table(rows),
      ),
      h("p.muted.small", say("board_about", { method: usualMethod.title })),
      h("p.unequal-heads", unequalRows(rows.map((row) => row.method))),
    ];
  }

  // The fastest method over all prompts, and whether noise could explain the difference
  verdict() {
    const { temperature } = this;
    const lead = this.results.leads.find((each) => each.temperature === temperature);
    if (!lead) return "";
    const [others, key] = lead.level.length
      ? [lead.level, "board_level"]
      : [[lead.against], "board_ahead"];
    return say(key, {
      temperature,
      method: methodOf(lead),
      others: others.map(methodTitle).join(", "),
      times: two(lead.times),
      against: methodTitle(lead.against),
      interval: between(lead.interval) || "–",
    });
  }

  table(rows) {
    const titles = {
      method: say("bench_method"),
      ...Object.fromEntries(Object.entries(COLUMNS).map(([id, [title]]) => [id, title])),
    };
    const heads = Object.entries(titles).map(([id, title]) => {
      const way = this.order !== id ? "none" : this.down ? "descending" : "ascending";
      return h(
        "th",
        { scope: "col", "data-column": id, "aria-sort": way },
        h(
          "button.board-sort",
          { type: "button", "data-sort": id, onclick: () => this.sort(id) },
          title,
          h(
            "span",
            { "aria-hidden": "true" },
            { none: "", descending: " ↓", ascending: " ↑" }[way],
          ),
        ),
      );
    });
    const caption = say("board_table", {
      temperature: this.temperature,
      category: categoryWords(this.category),
    });
    return tableOf(
      "board-table",
      caption,
      heads,
      rows.map((row) =>
        h(
          "tr",
          { "data-method": row.method },
          h("th", { scope: "row" }, methodOf(row)),
          Object.entries(COLUMNS).map(([id, [, words]]) => cell(id, words(row))),
        ),
      ),
    );
  }

  sort(id) {
    Object.assign(this, { order: id, down: this.order === id ? !this.down : id !== "method" });
    this.on.redraw();
  }
}
