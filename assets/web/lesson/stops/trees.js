// Stop 5: the recorded tree cut to its likeliest paths, judged again, with what each size brings and costs.

import { h, milliseconds, number, say } from "../../base/dom.js";
import { depthOf } from "../../data/history.js";
import { lessonControls } from "../controls.js";
import { lessonData } from "../data.js";

const TICKS = [4, 8, 16, 24, 32, 48, 63];

// A large tree that keeps a longish path, so that cutting it shows: the path must outlive some sizes, not all
function chooseStep(lane) {
  const worth = (step) => {
    const full = step.accepted_path.length;
    const small = lessonData.pruned(step, 4).accepted_path.length;
    return Math.min(full, 4) + (full > small ? 3 : 0) + step.nodes.length / 64;
  };
  return lessonData.pick(lessonData.whole(lane), worth);
}

export function treesStop(lesson) {
  const lane = lesson.greedy.drafted;
  const step = chooseStep(lane);
  const most = step.nodes.length - 1;
  const tree = lesson.tree();
  const chartHost = h("div", { class: "chart-host plot-host small-chart" });
  const chart = lessonControls.chart(chartHost, "tree-sizes", (n) => slider.move(n));
  const kept = lessonControls.result("kept");
  const tokens = lessonControls.figure("tokens", say("prune_tokens"), say("prune_tokens_note"));
  const check = lessonControls.figure("check", say("prune_check"));
  const rate = lessonControls.figure("rate", say("prune_rate"), say("prune_rate_note"));
  const tau = lessonControls.figure("tau", say("prune_mean"), say("prune_mean_note"));
  const slider = lessonControls.slider({ name: "candidates", label: say("candidates_slider"), min: 4, max: most,
    value: Math.min(24, most), format: String });
  const means = new Map();
  const meanAt = (n) => {
    if (!means.has(n)) means.set(n, lessonData.tokensAt(lane, n));
    return means.get(n);
  };

  function costs(n) {
    const profile = lesson.device.profile;
    const cut = lessonData.pruned(step, n);
    const ms = { check: lessonData.checkMs(profile, n + 1), draft: lessonData.draftMs(profile, depthOf(cut)) };
    return { ...ms, cut, tokens: lessonData.expectedTokens(cut), rate: (1000 * lessonData.expectedTokens(cut)) / (ms.check + ms.draft) };
  }

  function draw() {
    const n = slider.value;
    const now = costs(n);
    tree.draw(lane, step.index, now.cut, { phase: 3 });
    tokens.set(number(now.tokens, 2));
    check.set(say("speed_ms", { n: milliseconds(now.check) }), say("prune_check_note", { n: n + 1 }));
    rate.set(number(now.rate, 1));
    tau.set(number(meanAt(n), 2));
    kept.textContent = say("prune_kept", { kept: now.cut.accepted_path.length });
    const sizes = Array.from({ length: most - 3 }, (_, i) => i + 4);
    chart.draw({ label: say("prune_chart"), xName: say("prune_axis"), yName: say("prune_curve"),
      xTicks: TICKS.filter((tick) => tick <= most), mark: [n, now.rate],
      points: sizes.map((size) => [size, costs(size).rate]) });
  }

  return { screen: [h("div", { class: "lesson-controls" }, slider.element),
    h("div", { class: "figures" }, [tokens, check, rate, tau].map((one) => one.element)), tree.element,
    h("div", { class: "prune-below" }, h("div", null, kept, lesson.stepLine(lane, step)), chartHost),
    lesson.sourceLine()], draw, demo: [() => slider.move(4), () => slider.move(Math.min(24, most))] };
}
