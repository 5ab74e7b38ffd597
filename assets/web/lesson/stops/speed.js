// Stop 9: speedup = τ · T ÷ (draft + check). Four sliders set to the recording; the measured speed stays where it was.

import { h, number, say } from "../../base/dom.js";
import { lessonControls } from "../controls.js";
import { lessonData } from "../data.js";

const TOP = 4; // the least end of the scale

// Both speedups as bars on one scale, with a mark where drafting and plain decoding are equally fast
function ruler(speedups) {
  const top = Math.max(TOP, Math.ceil(Math.max(...Object.values(speedups))));
  return Object.entries(speedups).map(([name, value]) => h("div", { class: "pass-bar", "data-mark": name, "data-value": value.toFixed(3) },
    h("b", { class: "tabular" }, say(`speed_${name}`, { x: number(value, 2) })),
    h("div", { class: "even-bar", "aria-hidden": "true" }, h("span", { class: "even-fill", style: `width:${(100 * value) / top}%` }),
      h("span", { class: "even-mark", style: `left:${100 / top}%` }))));
}

export function speedStop(lesson) {
  const sizes = Object.fromEntries(["small", "greedy"].map((name) => {
    const { nodes, depth } = lesson.pairs[name].drafted.header.tree;
    return [name, { nodes, depth, ...lessonData.measured(lesson.pairs[name]) }];
  }));
  let recorded = sizes.small;
  const longest = Math.max(100, Math.ceil((Math.max(...Object.values(sizes).map((size) => size.check)) * 1.5) / 10) * 10);
  const ms = (value) => say("speed_ms", { n: number(value, 1) });
  const make = (name, options) => lessonControls.slider({ name, label: say(`speed_${name}`), ...options });
  const time = { min: 0.1, max: longest, step: 0.1, format: ms };
  const tau = { min: 1, max: sizes.greedy.depth + 1, step: 0.01, value: recorded.tau, format: (value) => number(value, 2) };
  const sliders = { tau: make("tau", tau), plain: make("plain", { ...time, value: recorded.plain }),
    draft: make("draft", { ...time, min: 0, value: recorded.draft }), check: make("check", { ...time, value: recorded.check }) };
  const host = h("div", { class: "pass-bars ruler" });
  const sentence = lessonControls.result("prediction", "tabular");
  const even = h("p", { "data-result": "even" });
  const other = h("p", { class: "muted", "data-result": "other" });
  const from = h("p", { class: "muted small", "data-result": "from" });
  const values = () => Object.fromEntries(Object.entries(sliders).map(([name, one]) => [name, one.value]));
  const predict = (v) => (v.tau * v.plain) / (v.draft + v.check);

  function draw() {
    const v = values();
    const x = predict(v);
    host.replaceChildren(...ruler({ predicted: x, measured: recorded.speedup }), h("p", { class: "muted small" }, say("speed_line")));
    const shown = { tau: number(v.tau, 2), plain: number(v.plain, 1), draft: number(v.draft, 1), check: number(v.check, 1), x: number(x, 2) };
    sentence.textContent = `${say("speed_sentence", shown)}${x < 1 ? ` · ${say("speed_slower")}` : ""}`;
    even.textContent = say("speed_even", { now: number(v.tau, 2), tau: number((v.draft + v.check) / v.plain, 2) });
    other.textContent = say("speed_other", { other: number(recorded.other, 1), measured: number(recorded.speedup, 2) });
    from.textContent = say("speed_from_recorded", { n: recorded.steps });
  }

  const reset = () => Object.entries(sliders).forEach(([name, one]) => one.set(recorded[name]));

  const size = lessonControls.choice({ name: "speed-size", label: say("speed_size"), options: Object.fromEntries(
    Object.entries(sizes).map(([name, one]) => [name, say("many_candidates", { n: one.nodes - 1 })])), value: "small",
    onPick: (value) => {
      recorded = sizes[value];
      reset();
    } });
  return { screen: [h("div", { class: "lesson-controls grid" }, Object.values(sliders).map((one) => one.element)),
    h("div", { class: "lesson-buttons" }, size.element, lessonControls.button("speed-reset", say("speed_reset"), reset)), from, host,
    sentence, even, other, lesson.sourceLine(), h("div", { class: "lesson-buttons" }, lessonControls.raceButton())], draw,
    demo: [() => sliders.draft.move(longest), () => sliders.draft.move(recorded.draft)] };
}
