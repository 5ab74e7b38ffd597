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
  const names = { "data-control": name, "aria-label": label };
  const input = h("input", { type: "range", min, max, step, value, ...names });
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
  const radios = Object.entries(options).map(([key, words]) => {
    const data = { "data-control": name, "data-value": key, checked: key === String(value) };
    const input = { type: "radio", name: `lesson-${name}`, ...data, oninput: () => onPick?.(key) };
    return h("label.choice", h("input", input), words);
  });
  const role = { role: "radiogroup", "aria-label": label };
  const element = h("div.lesson-choice", role, h("span", label), h("span.segments", radios));
  return {
    element,
    get value() {
      return element.querySelector(":checked").dataset.value;
    },
    press: (key) => element.querySelector(`[data-value="${key}"]`).click(),
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
  const attributes = { type: "button", "data-control": name, onclick };
  const element = h("button.lesson-button", attributes, words);
  if (!off) return element;
  return { element, draw: () => (element.disabled = off()), click: () => element.click() };
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
    const [x, y] = mark;
    const full = [xTicks[0], points.at(-1)[0]];
    const heights = points.map((point) => point[1]);
    const highest = top || Math.max(...heights) * 1.08;
    const words = (value) => number(value, value < 10 ? 2 : 1);
    const at = (place) => say("chart_at", { x: place, name: xName });
    const curve = {
      x: points.map((point) => point[0]),
      y: heights,
      mode: "lines",
      text: heights.map(words),
      hovertemplate: "%{text}<extra></extra>",
      line: plotStyle.lineOf("main"),
    };
    const dot = { x: [x], y: [y], mode: "markers", marker: plotStyle.markerOf("main", 11) };
    const dashed = { color: plotStyle.template().colours.control, width: 1, dash: "3px,3px" };
    const xs = Array.from({ length: full[1] - full[0] + 1 }, (_, i) => full[0] + i);
    const hoverTitle = { text: plotStyle.plotText(at("%{x}")) };
    shown.draw({
      id: name,
      name: `jakiro-${name}`,
      sentence: `${label}. ${at(x)}: ${words(y)}`,
      rows: () => [[xName, yName], ...xs.map((place) => [place, interpolate(points, place)])],
      series: [
        { name: yName, traces: [curve] },
        { name: "", traces: [dot] },
      ],
      margin: { left: 44 },
      x: { title: xName, full, ticks: { tickvals: xTicks, unifiedhovertitle: hoverTitle } },
      y: { title: yName, full: [0, highest] },
      shapes: [{ type: "line", x0: x, x1: x, y0: 0, y1: y, line: dashed }],
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
export function question(stop, text) {
  const options = text.options.map(([words, reason], i) => {
    const isRight = i === text.right;
    const verdict = isRight ? `✓ ${say("lesson_right")}` : `✗ ${say("lesson_wrong")}`;
    return h(
      isRight ? "details.right" : "details.wrong",
      { name: `lesson-question-${stop}`, "data-option": i },
      h("summary", words),
      h("p.feedback", h("b", verdict), ` ${reason}`),
    );
  });
  const asked = h("p", h("b", say("lesson_check_title")), " ", text.question);
  return h("section.lesson-question", { "data-question": stop + 1 }, asked, options);
}
