// Parts of stops: sliders, switches, lines of text, a chart, a question. A part is an element or {element, draw}; all parts of a
// stop are redrawn after each use of a control.

import { h, number, say } from "../base/dom.js";
import { armQuestion } from "../chat/asking.js";
import { questionBox } from "../chat/box.js";
import { interpolate } from "./data.js";
import { Figure } from "../plots/figure.js";
import { plotStyle } from "../plots/template.js";

export const elementsOf = (pieces) =>
  pieces
    .flat(3)
    .filter(Boolean)
    .map((piece) => piece.element || piece);
export const drawAll = (pieces) => pieces.flat(3).forEach((piece) => piece?.draw?.());

export const group =
  (kind) =>
  (...pieces) => ({
    element: h("div", { class: kind }, elementsOf(pieces)),
    draw: () => drawAll(pieces),
  });
export const row = group("lesson-controls");
export const buttons = group("lesson-buttons");

// An element whose content depends on the controls of its stop
export const filled = (element, content) => ({
  element,
  draw: () => element.replaceChildren(...[content()].flat()),
});
export const bars = (content) => filled(h("div.pass-bars"), content);
export const line = (name, words, kind = "") =>
  filled(h("p", { class: kind, "data-result": name }), words);
// The sentence about the result of a control
export const result = (name, words, kind = "") =>
  filled(h("p", { class: `result ${kind}`, role: "status", "data-result": name }), words);

// A slider with its value in words; `move` sets it and fires an input event like a visitor's drag, `set` fires no event
export function slider({ name, label, min, max, step = 1, value, format }) {
  const output = h("output.tabular");
  const input = h("input", {
    type: "range",
    min,
    max,
    step,
    value,
    "data-control": name,
    "aria-label": label,
  });
  const show = () => {
    const words = format(Number(input.value));
    output.textContent = words;
    input.setAttribute("aria-valuetext", words);
  };
  input.addEventListener("input", show);
  show();
  return {
    element: h("label.lesson-slider", h("span", label), input, output),
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

// A radio group; `options` maps values to labels
export function choice({ name, label, options, value, onPick }) {
  const inputs = Object.keys(options).map((key) =>
    h("input", {
      type: "radio",
      name: `lesson-${name}`,
      "data-control": name,
      "data-value": key,
      checked: key === String(value),
      oninput: () => onPick?.(key),
    }),
  );
  return {
    element: h(
      "div.lesson-choice",
      { role: "radiogroup", "aria-label": label },
      h("span", label),
      h(
        "span.segments",
        Object.values(options).map((words, i) => h("label.choice", inputs[i], words)),
      ),
    ),
    get value() {
      return inputs.find((one) => one.checked).dataset.value;
    },
    press: (key) => inputs.find((one) => one.dataset.value === String(key)).click(),
  };
}

export const onOff = (name, label) =>
  choice({ name, label, options: { on: say("on"), off: say("off") }, value: "on" });

export const primary = (element) => {
  element.classList.add("primary");
  return element;
};

// `off()` returns whether the button is disabled; without it, the button is never disabled
export function button(name, words, onclick, off) {
  const element = h(
    "button.lesson-button",
    { type: "button", "data-control": name, onclick },
    words,
  );
  return off
    ? { element, draw: () => (element.disabled = off()), click: () => element.click() }
    : element;
}

// A number with its name above and its definition below
export const figure = (name, title, value, note = () => "") =>
  group("figure")(
    h("div.figure-name", title),
    filled(h("div.figure-value.tabular", { "data-figure": name }), value),
    filled(h("div.figure-note"), note),
  );

// A line through [x, y] points and one marked point from `of()`; a click calls `onPick` with the integer on the x axis
export function chart(name, kind, of, onPick) {
  const element = h("div", { class: `chart-host plot-host ${kind}` });
  const shown = new Figure(element, draw);

  function draw() {
    const { points, mark, xTicks, xName, yName, label, top } = of();
    const full = [xTicks[0], points.at(-1)[0]];
    const highest = top || Math.max(...points.map(([, y]) => y)) * 1.08;
    const words = (value) => number(value, value < 10 ? 2 : 1);
    const xs = Array.from({ length: full[1] - full[0] + 1 }, (_, i) => full[0] + i);
    const curve = {
      name: yName,
      traces: [
        {
          x: points.map(([x]) => x),
          y: points.map(([, y]) => y),
          mode: "lines",
          text: points.map(([, y]) => words(y)),
          hovertemplate: "%{text}<extra></extra>",
          line: plotStyle.lineOf("main"),
        },
      ],
    };
    const dot = {
      name: "",
      traces: [
        { x: [mark[0]], y: [mark[1]], mode: "markers", marker: plotStyle.markerOf("main", 11) },
      ],
    };
    shown.draw({
      id: name,
      name: `jakiro-${name}`,
      sentence: `${label}. ${say("chart_at", { x: mark[0], name: xName })}: ${words(mark[1])}`,
      rows: () => [[xName, yName], ...xs.map((x) => [x, interpolate(points, x)])],
      series: [curve, dot],
      margin: { left: 44 },
      x: {
        title: xName,
        full,
        ticks: {
          tickvals: xTicks,
          unifiedhovertitle: {
            text: plotStyle.plotText(say("chart_at", { x: "%{x}", name: xName })),
          },
        },
      },
      y: { title: yName, full: [0, highest] },
      shapes: [
        {
          type: "line",
          x0: mark[0],
          x1: mark[0],
          y0: 0,
          y1: mark[1],
          line: { color: plotStyle.template().colours.control, width: 1, dash: "3px,3px" },
        },
      ],
      pick: onPick,
    });
  }
  return { element, draw };
}

// A button that leads from the lesson to the visitor's own question
export const raceButton = () =>
  primary(
    button("race", say("lesson_race"), () => {
      armQuestion();
      questionBox()?.focus();
    }),
  );

// One question: each answer opens on its reason, one at a time
export const question = (stop, text) =>
  h(
    "section.lesson-question",
    { "data-question": stop + 1 },
    h("p", h("b", say("lesson_check_title")), " ", text.question),
    text.options.map(([words, reason], i) =>
      h(
        "details",
        {
          name: `lesson-question-${stop}`,
          class: i === text.right ? "right" : "wrong",
          "data-option": i,
        },
        h("summary", words),
        h(
          "p.feedback",
          h("b", i === text.right ? `✓ ${say("lesson_right")}` : `✗ ${say("lesson_wrong")}`),
          ` ${reason}`,
        ),
      ),
    ),
  );
