// Stop 9: speedup = τ · T ÷ (draft + check). Four sliders set to the recording; the measured speed stays where it was.

import { h, number, say } from "../../base/dom.js";
import {
  button,
  buttons,
  choice,
  filled,
  group,
  line,
  raceButton,
  result,
  slider,
} from "../controls.js";
import { measured } from "../data.js";

const TOP = 4; // the scale ends here or later

// Both speedups as bars on one scale, with a mark where drafting and plain decoding are equally fast
function ruler(speedups) {
  const top = Math.max(TOP, Math.ceil(Math.max(...Object.values(speedups))));
  return Object.entries(speedups).map(([name, value]) =>
    h(
      "div.pass-bar",
      { "data-mark": name, "data-value": value.toFixed(3) },
      h("b.tabular", say(`speed_${name}`, { x: number(value, 2) })),
      h(
        "div.even-bar",
        { "aria-hidden": "true" },
        h("span.even-fill", { style: `width:${(100 * value) / top}%` }),
        h("span.even-mark", { style: `left:${100 / top}%` }),
      ),
    ),
  );
}

export function speedStop(lesson) {
  const sizes = Object.fromEntries(
    ["small", "greedy"].map((name) => {
      const { nodes, depth } = lesson.pairs[name].drafted.header.tree;
      return [name, { nodes, depth, ...measured(lesson.pairs[name]) }];
    }),
  );
  const size = choice({
    name: "speed-size",
    label: say("speed_size"),
    options: Object.fromEntries(
      Object.entries(sizes).map(([name, one]) => [
        name,
        say("many_candidates", { n: one.nodes - 1 }),
      ]),
    ),
    value: "small",
    onPick: () => reset(),
  });
  const recorded = () => sizes[size.value];
  const longest = Math.max(
    100,
    Math.ceil((Math.max(...Object.values(sizes).map((one) => one.check)) * 1.5) / 10) * 10,
  );
  const time = {
    min: 0,
    max: longest,
    step: 0.1,
    format: (value) => say("speed_ms", { n: number(value, 1) }),
  };
  const rules = {
    tau: { min: 1, max: sizes.greedy.depth + 1, step: 0.01, format: (value) => number(value, 2) },
    plain: { ...time, min: 0.1 },
    draft: time,
    check: { ...time, min: 0.1 },
  };
  const sliders = Object.fromEntries(
    Object.entries(rules).map(([name, rule]) => [
      name,
      slider({ name, label: say(`speed_${name}`), value: recorded()[name], ...rule }),
    ]),
  );
  const reset = () => Object.entries(sliders).forEach(([name, one]) => one.set(recorded()[name]));
  const values = () =>
    Object.fromEntries(Object.entries(sliders).map(([name, one]) => [name, one.value]));
  const predicted = ({ tau, plain, draft, check } = values()) => (tau * plain) / (draft + check);

  function sentence() {
    const { tau, plain, draft, check } = values();
    const x = predicted();
    const shown = {
      tau: number(tau, 2),
      plain: number(plain, 1),
      draft: number(draft, 1),
      check: number(check, 1),
      x: number(x, 2),
    };
    return `${say("speed_sentence", shown)}${x < 1 ? ` · ${say("speed_slower")}` : ""}`;
  }

  function even() {
    const { tau, plain, draft, check } = values();
    return say("speed_even", { now: number(tau, 2), tau: number((draft + check) / plain, 2) });
  }

  const rulers = filled(h("div.pass-bars.ruler"), () => [
    ...ruler({ predicted: predicted(), measured: recorded().speedup }),
    h("p.muted.small", say("speed_line")),
  ]);
  return {
    screen: [
      group("lesson-controls grid")(...Object.values(sliders)),
      buttons(size, button("speed-reset", say("speed_reset"), reset)),
      line("from", () => say("speed_from_recorded", { n: recorded().steps }), "muted small"),
      rulers,
      result("prediction", sentence, "tabular"),
      line("even", even),
      line(
        "other",
        () =>
          say("speed_other", {
            other: number(recorded().other, 1),
            measured: number(recorded().speedup, 2),
          }),
        "muted",
      ),
      lesson.sourceLine(),
      buttons(raceButton()),
    ],
    demo: [() => sliders.draft.move(longest), () => sliders.draft.move(recorded().draft)],
  };
}
