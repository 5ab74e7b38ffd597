// Controls that the stops share: sliders with their value in words, switches, a chart, and the check question. A stop reads their values
// when it is drawn, and it is drawn anew after each of them was used.

import { h, number, say, table } from "../base/dom.js";
import { armQuestion } from "../chat/asking.js";
import { questionBox } from "../chat/box.js";
import { lessonData } from "./data.js";
import { Figure } from "../plots/figure.js";
import { plotStyle } from "../plots/template.js";

let used = 0;
const nextId = (name) => `lesson-${name}-${(used += 1)}`;

// A slider that says its value in words; `move` is a hand's, `set` goes unheard
function slider({ name, label, min, max, step = 1, value, format, onInput }) {
  const id = nextId(name);
  const output = h("output", { class: "tabular", for: id });
  const input = h("input", { type: "range", id, min, max, step, value, "data-control": name });
  const show = () => {
    const words = format(Number(input.value));
    output.textContent = words;
    input.setAttribute("aria-valuetext", words);
  };
  input.addEventListener("input", show);
  if (onInput) input.addEventListener("input", onInput);
  show();
  return {
    element: h("div", { class: "lesson-slider" }, h("label", { for: id }, label), input, output),
    get value() {
      return Number(input.value);
    },
    set(next) {
      input.value = next;
      show();
    },
    move(next) {
      input.value = next;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    },
  };
}

// One of a few: {value: words}
function choice({ name, label, options, value, onPick }) {
  const id = nextId(name);
  const inputs = Object.keys(options).map((key) => h("input", { type: "radio", name: id, "data-control": name, "data-value": key,
    checked: key === String(value), oninput: () => onPick?.(key) }));
  return {
    element: h("div", { class: "lesson-choice", role: "radiogroup", "aria-labelledby": id }, h("span", { id }, label),
      h("span", { class: "segments" }, Object.values(options).map((words, i) => h("label", { class: "choice" }, inputs[i], words)))),
    get value() {
      return inputs.find((one) => one.checked).dataset.value;
    },
    press: (key) => inputs.find((one) => one.dataset.value === String(key)).click(),
  };
}

const onOff = (name, label) => choice({ name, label, options: { on: say("on"), off: say("off") }, value: "on" });

// The sentence that says what a control has done
const result = (name, more = "") => h("p", { class: `result ${more}`, role: "status", "data-result": name });

const button = (name, words, onclick) =>
  h("button", { type: "button", class: "lesson-button", "data-control": name, onclick }, words);

// A number with its name above and its definition below
function figure(name, title, note) {
  const value = h("div", { class: "figure-value tabular", "data-figure": name });
  const small = h("div", { class: "figure-note" }, note || "");
  return {
    element: h("div", { class: "figure" }, h("div", { class: "figure-name" }, title), value, small),
    set(words, noteWords) {
      value.textContent = words;
      if (noteWords !== undefined) small.textContent = noteWords;
    },
  };
}

const closedTable = (summary, heads, rows) =>
  h("details", { class: "lesson-table" }, h("summary", null, summary), table(null, heads, rows));

// A line through [x, y] points and one marked point; `name` is part of saved files' names, and `onPick` gets the whole number on
// the x axis that was clicked
function chart(host, name, onPick) {
  let last = null;
  const figure = new Figure(host, () => last && draw(last));

  function draw(given) {
    last = given;
    const { points, mark, xTicks, xName, yName, label, top } = given;
    const full = [xTicks[0], points.at(-1)[0]];
    const highest = top || Math.max(...points.map(([, y]) => y)) * 1.08;
    const words = (value) => number(value, value < 10 ? 2 : 1);
    const rows = (places, shown) => places.map((x) => [x, lessonData.interpolate(points, x)].map(shown));
    const xs = Array.from({ length: full[1] - full[0] + 1 }, (_, i) => full[0] + i);
    const line = { name: yName, traces: () => [{ x: points.map(([x]) => x), y: points.map(([, y]) => y), mode: "lines",
      text: points.map(([, y]) => words(y)), hovertemplate: "%{text}<extra></extra>", line: plotStyle.lineOf("main") }] };
    const dot = { name: "", traces: () => [{ x: [mark[0]], y: [mark[1]], mode: "markers",
      marker: plotStyle.markerOf("main", 11) }] };
    figure.draw({
      id: name, name: `jakiro-${name}`, sentence: `${label}. ${say("chart_at", { x: mark[0], name: xName })}: ${words(mark[1])}`,
      table: () => table(label, [xName, yName], rows(xTicks, String)), rows: () => [[xName, yName], ...rows(xs, (value) => value)],
      series: [line], labelled: true, over: [dot], margin: { left: 44 },
      x: { title: xName, full, ticks: { tickvals: xTicks, unifiedhovertitle: { text: plotStyle.plotText(say("chart_at", { x: "%{x}", name: xName })) } } },
      y: { title: yName, full: [0, highest] },
      shapes: [{ type: "line", x0: mark[0], x1: mark[0], y0: 0, y1: mark[1],
        line: { color: plotStyle.template().colours.control, width: 1, dash: "3px,3px" } }],
      pick: onPick,
    });
  }
  return { draw };
}

// Leads from the lesson to a question of one's own
function raceButton() {
  const element = button("race", say("lesson_race"), () => {
    armQuestion();
    questionBox()?.focus();
  });
  element.classList.add("primary");
  return element;
}

// One question: each answer opens on its reason, one at a time
const question = (stop, text) => h("section", { class: "lesson-question", "data-question": stop + 1 },
  h("p", null, h("b", null, say("lesson_check_title")), " ", text.question), text.options.map(([words, reason], i) =>
    h("details", { name: `lesson-question-${stop}`, class: i === text.right ? "right" : "wrong", "data-option": i }, h("summary", null, words),
      h("p", { class: "feedback" }, h("b", null, i === text.right ? `✓ ${say("lesson_right")}` : `✗ ${say("lesson_wrong")}`), ` ${reason}`))));

export const lessonControls = { slider, choice, onOff, button, result, figure, closedTable, chart, question, raceButton };
