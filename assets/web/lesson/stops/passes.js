// Stop 1: the time of a pass: n passes of one row next to one pass of n rows, the minimum time to read the weights, and the
// time by number of rows.

import { filledBar, h, milliseconds, number, say, table } from "../../base/dom.js";
import { bars, chart, result, row, slider } from "../controls.js";
import { checkMs } from "../data.js";

const ROW_TICKS = [1, 8, 16, 24, 32, 48, 64];
const MOST_GB = 4000;

// The memory slider is logarithmic: 0 … 100 covers 1 … 4000 GB/s
const toSpeed = (place) => MOST_GB ** (place / 100);
const toPlace = (speed) => (100 * Math.log(speed)) / Math.log(MOST_GB);
const speedWords = (speed) => say("memory_value", { n: number(speed, speed < 20 ? 1 : 0) });
const rowWords = (n) => say(n === 1 ? "rows_value_one" : "rows_value", { n });

const bar = (name, words, ms, drawn) =>
  h(
    "div.pass-bar",
    { "data-bar": name },
    h("span.bar-words", words),
    drawn,
    h("span.tabular", say("speed_ms", { n: milliseconds(ms) })),
  );

function floorBars(floor, pass, size) {
  const most = Math.max(floor, pass);
  const words = say("bar_weights", { size: number(size / 1e6, 0) });
  return [
    bar("weights", words, floor, filledBar("fill-muted", floor / most)),
    bar("pass", say("bar_pass"), pass, filledBar("fill-ink", pass / most)),
  ];
}

// Two bars; each block is one pass, which reads all weights: `n` passes of one row, and one pass of `n` rows
function blocks(n, one, together) {
  const block = (ms, kind) =>
    h("span", { class: `block ${kind}`, style: `width:${(100 * ms) / (n * one)}%` });
  const single = Array.from({ length: n }, () => block(one, "fill-muted"));
  return [
    bar("apart", say("pass_apart"), n * one, h("span.blocks", single)),
    bar("together", say("pass_curve"), together, h("span.blocks", block(together, "fill-ink"))),
  ];
}

export function passesStop(lesson) {
  const { weight_bytes: size, memory_bytes_per_second: recorded, profile } = lesson.device;
  const pass = (n) => checkMs(profile, n);
  const points = Array.from({ length: 64 }, (_, i) => [i + 1, pass(i + 1)]);
  const range = { min: 1, max: 64, value: 8, format: rowWords };
  const rows = slider({ name: "rows", label: say("rows"), ...range });
  const memory = slider({
    name: "memory",
    label: say("memory_speed"),
    min: 20,
    max: 100,
    step: 0.5,
    value: toPlace(recorded / 1e9),
    format: (place) => speedWords(toSpeed(place)),
  });
  const view = () => ({
    label: say("pass_chart"),
    xTicks: ROW_TICKS,
    xName: say("pass_axis"),
    yName: say("pass_ms"),
    top: pass(64) * 1.1,
    mark: [rows.value, pass(rows.value)],
    points,
  });
  const curve = chart("passes", "", view, rows.move);

  function sentence() {
    const n = rows.value;
    return say(n === 1 ? "pass_sentence_one" : "pass_sentence", {
      rows: rowWords(n),
      ms: milliseconds(pass(n)),
      apart: milliseconds(pass(1) * n),
      times: number((pass(1) * n) / pass(n), 1),
    });
  }

  return {
    screen: [
      row(rows),
      bars(() => blocks(rows.value, pass(1), pass(rows.value))),
      result("passes", sentence),
      curve,
      row(memory),
      bars(() => floorBars((1000 * size) / (toSpeed(memory.value) * 1e9), pass(1), size)),
      h(
        "details.lesson-table",
        h("summary", say("pass_table")),
        table(
          null,
          [say("table_rows"), say("table_ms")],
          profile.verify_ms.map(([i, ms]) => [i, milliseconds(ms)]),
        ),
      ),
      lesson.sourceLine(),
    ],
    demo: [() => rows.move(64), () => rows.move(8)],
  };
}
