// The leaderboard: all methods on the recorded prompts, with trees of their own best size for speed or with equal ones for
// acceptance, by temperature and category, in any order.

import { h, milliseconds, number, rate, say } from "../base/dom.js";
import { benchmarkRows } from "./table.js";
import { methodTitle, usualMethod } from "../data/methods.js";

const { OVERALL, categoryWords, times, shareWords, spread, cell, tableOf, unequalRows } = benchmarkRows;

const DISCIPLINES = ["own_size", "same_nodes"];
const two = (value) => number(value, 2);
const between = (interval) => interval && spread(interval);
const ratio = (value, interval) => (value === null ? ["–"] : [times(value), between(interval)]);

// A column: its title, what it is sorted by, and its words, the second ones smaller
const column = (id, title, value, words) => ({ id, title, value, words });
const named = column("method", say("bench_method"), (row) => methodTitle(row.method), null);
const same = column("same", say("bench_same"), (row) => row.identical, (row) => [shareWords(row.identical)]);
const msColumn = (name, title) => column(name, title, (row) => row[name], (row) => [milliseconds(row[name])]);

const SPEED = [
  column("speed", say("board_speed"), (row) => row.speed, (row) => [rate(row.speed)]),
  column("speedup", say("board_plain"), (row) => row.speedup, (row) => ratio(row.speedup, row.speedup_interval)),
  column("against", say("board_against", { method: usualMethod.title }), (row) => row.against,
    (row) => ratio(row.against, row.against_interval)),
  column("tau", say("bench_tau"), (row) => row.tau, (row) => [two(row.tau), between(row.tau_interval)]),
  msColumn("draft_ms", say("board_draft")), msColumn("verify_ms", say("board_verify")), msColumn("other_ms", say("board_other")), same,
];

// A pair of columns for each size
const acceptance = (sizes) => [...sizes.flatMap((nodes) => [
  column(`tau_${nodes}`, say("board_tau", { nodes }), (row) => row[nodes].tau, (row) => [two(row[nodes].tau),
    between(row[nodes].tau_interval)]),
  column(`kept_${nodes}`, say("board_kept", { nodes }), (row) => row[nodes].acceptance, (row) => [shareWords(row[nodes].acceptance)]),
]), same];

// The rows of all sizes of a method as one
function joined(rows, sizes) {
  const methods = [...new Set(rows.map((row) => row.method))];
  return methods.map((method) => {
    const own = rows.filter((row) => row.method === method);
    const bySize = Object.fromEntries(sizes.map((nodes) => [nodes, own.find((row) => row.nodes === nodes)]));
    const unknown = own.some((row) => row.identical === null);
    return { method, ...bySize, identical: unknown ? null : Math.min(...own.map((row) => row.identical)) };
  }).filter((row) => sizes.every((nodes) => row[nodes]));
}

export class Leaderboard {
  // `on`: {redraw, pick: makes a choice, as the head of the results has them}
  constructor(on) {
    this.on = on;
    this.shown = { discipline: null, temperature: null, category: OVERALL };
    this.order = { own_size: { id: "speed", down: true }, same_nodes: { id: null, down: true } };
  }

  take(boards) {
    this.boards = boards;
    this.known = DISCIPLINES.filter((name) => boards && boards[name]);
    this.shown.discipline = this.known[0] || null;
  }

  get board() {
    return this.boards[this.shown.discipline];
  }

  // What the head of the results says of it: {environment, settings}, or null while there is none
  get results() {
    return this.boards && this.shown.discipline ? this.board : null;
  }

  get columns() {
    return [named, ...(this.shown.discipline === "own_size" ? SPEED : acceptance(this.board.sizes))];
  }

  // The rows of this temperature and category, sorted; those without a number come last
  rows() {
    const { temperature, category, discipline } = this.shown;
    const here = this.board.rows.filter((row) => row.temperature === temperature && row.category === category);
    const rows = discipline === "own_size" ? here : joined(here, this.board.sizes);
    const order = this.order[discipline];
    const { value } = this.columns.find(({ id }) => id === order.id) || this.columns[1];
    const sign = order.down ? -1 : 1;
    return rows.sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === null || right === null) return (left === null) - (right === null);
      return sign * (typeof left === "string" ? left.localeCompare(right) : left - right);
    });
  }

  // Buttons for the head of the results
  choices() {
    const { shown } = this;
    const { pick } = this.on;
    const temperatures = [...new Set(this.board.rows.map((row) => row.temperature))];
    if (!temperatures.includes(shown.temperature)) shown.temperature = temperatures[0];
    const categories = [...new Set(this.board.rows.map((row) => row.category))];
    const select = h("select", { "data-control": "board-category", "aria-label": say("bench_category"), onchange: (event) => {
      shown.category = event.target.value;
      this.on.redraw();
    } }, categories.map((category) => h("option", { value: category, selected: category === shown.category }, categoryWords(category))));
    return [
      this.known.length > 1 && pick("board-discipline", say("board_discipline"), Object.fromEntries(this.known.map((name) =>
        [name, say(`board_${name}`)])), shown.discipline, (value) => (shown.discipline = value)),
      pick("board-temperature", say("bench_temperature"), Object.fromEntries(temperatures.map((value) => [`T ${value}`, String(value)])),
        `T ${shown.temperature}`, (value) => (shown.temperature = Number(value.slice(2)))),
      select,
    ].filter(Boolean);
  }

  body() {
    const rows = this.rows();
    return [
      h("p", { class: "board-verdict", "data-result": "verdict" }, this.verdict()),
      h("div", { class: "bench-scroll", tabindex: 0, role: "region", "aria-label": say("board") }, this.table(rows)),
      h("p", { class: "muted small" }, say(`board_about_${this.shown.discipline}`, { method: usualMethod.title })),
      h("p", { class: "unequal-heads" }, unequalRows(rows.map((row) => row.method))),
    ];
  }

  // Who is first over all prompts, and whether noise alone could have put it there
  verdict() {
    const { discipline, temperature } = this.shown;
    if (discipline !== "own_size") return say("board_no_speed");
    const lead = this.board.leads.find((each) => each.temperature === temperature);
    if (!lead) return "";
    const [others, key] = lead.level.length ? [lead.level, "board_level"] : [[lead.against], "board_ahead"];
    return say(key, { temperature, method: methodTitle(lead.method), others: others.map(methodTitle).join(", "),
      times: two(lead.times), against: methodTitle(lead.against), interval: between(lead.interval) || "–" });
  }

  table(rows) {
    const { columns } = this;
    const order = this.order[this.shown.discipline];
    const sorted = columns.find(({ id }) => id === order.id) || columns[1];
    const head = columns.map(({ id, title }) => {
      const down = sorted.id === id ? order.down : null;
      return h("th", { scope: "col", "data-column": id, "aria-sort": down === null ? "none" : down ? "descending" : "ascending" },
        h("button", { type: "button", class: "board-sort", "data-sort": id, onclick: () => this.sort(id, down) }, title,
          h("span", { "aria-hidden": "true" }, down === null ? "" : down ? " ↓" : " ↑")));
    });
    const caption = say("board_table", { temperature: this.shown.temperature, category: categoryWords(this.shown.category) });
    return tableOf("board-table", caption, head, rows.map((row) => h("tr", { "data-method": row.method },
      h("th", { scope: "row" }, methodTitle(row.method)), columns.slice(1).map(({ id, words }) => cell(id, words(row))))));
  }

  sort(id, down) {
    this.order[this.shown.discipline] = { id, down: down === null ? id !== "method" : !down };
    this.on.redraw();
  }
}
