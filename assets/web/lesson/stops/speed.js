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
  const { small, greedy } = lesson.pairs;
  const sizes = { small: measured(small), greedy: measured(greedy) };
  const treeOf = ({ drafted }) => drafted.header.tree;
  const sizeWords = (pair) => say("many_candidates", { n: treeOf(pair).nodes - 1 });
  const size = choice({
    name: "speed-size",
    label: say("speed_size"),
    options: { small: sizeWords(small), greedy: sizeWords(greedy) },
    value: "small",
    onPick: () => reset(),
  });
  const recorded = () => sizes[size.value];
  const slowest = Math.max(sizes.small.check, sizes.greedy.check);
  const longest = Math.max(100, Math.ceil((slowest * 1.5) / 10) * 10);
  const time = {
    min: 0,
    max: longest,
    step: 0.1,
    format: (value) => say("speed_ms", { n: number(value, 1) }),
  };
  const rules = {
    tau: { min: 1, max: treeOf(greedy).depth + 1, step: 0.01, format: (value) => number(value, 2) },
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
  const speedupOf = ({ tau, plain, draft, check }) => (tau * plain) / (draft + check);

  function sentence() {
    const { tau, ...times } = values();
    const x = speedupOf(values());
    const [plain, draft, check] = [times.plain, times.draft, times.check].map((ms) =>
      number(ms, 1),
    );
    const shown = { tau: number(tau, 2), plain, draft, check, x: number(x, 2) };
    return `${say("speed_sentence", shown)}${x < 1 ? ` · ${say("speed_slower")}` : ""}`;
  }

  function even() {
    const { tau, plain, draft, check } = values();
    return say("speed_even", { now: number(tau, 2), tau: number((draft + check) / plain, 2) });
  }

  function measurement() {
    const { other, speedup } = recorded();
    return say("speed_other", { other: number(other, 1), measured: number(speedup, 2) });
  }

  const rulers = filled(h("div.pass-bars.ruler"), () => [
    ...ruler({ predicted: speedupOf(values()), measured: recorded().speedup }),
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
      line("other", measurement, "muted"),
      lesson.sourceLine(),
      buttons(raceButton()),
    ],
    demo: [() => sliders.draft.move(longest), () => sliders.draft.move(recorded().draft)],
  };
}
