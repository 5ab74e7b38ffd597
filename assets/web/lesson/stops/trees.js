// Stop 5: the recorded tree cut to its most probable paths, verified again, with the benefit and the cost of each size.

import { milliseconds, number, say } from "../../base/dom.js";
import { depthOf } from "../../data/history.js";
import { chart, figure, group, result, row, slider } from "../controls.js";
import { checkMs, draftMs, expectedTokens, pick, pruned, tokensAt, whole } from "../data.js";

const TICKS = [4, 8, 16, 24, 32, 48, 63];

// A large tree with an accepted path of four or more tokens, if there is one; cutting it to four candidates should shorten it
const chooseStep = (lane) =>
  pick(whole(lane), (step) => {
    const full = step.accepted_path.length;
    const small = pruned(step, 4).accepted_path.length;
    return Math.min(full, 4) + (full > small ? 3 : 0) + step.nodes.length / 64;
  });

export function treesStop(lesson) {
  const lane = lesson.greedy.drafted;
  const { profile } = lesson.device;
  const step = chooseStep(lane);
  const most = step.nodes.length - 1;
  const size = slider({
    name: "candidates",
    label: say("candidates_slider"),
    min: 4,
    max: most,
    value: Math.min(24, most),
    format: String,
  });

  function costsOf(n) {
    const cut = pruned(step, n);
    const tokens = expectedTokens(cut);
    const check = checkMs(profile, n + 1);
    const ms = check + draftMs(profile, depthOf(cut));
    return { check, cut, tokens, rate: (1000 * tokens) / ms };
  }

  const costs = new Map(Array.from({ length: most - 3 }, (_, i) => [i + 4, costsOf(i + 4)]));
  const now = () => costs.get(size.value);
  const figures = [
    ["tokens", "prune_tokens", () => number(now().tokens, 2)],
    ["check", "prune_check", () => say("speed_ms", { n: milliseconds(now().check) })],
    ["rate", "prune_rate", () => number(now().rate, 1)],
    ["tau", "prune_mean", () => number(tokensAt(lane, size.value), 2)],
  ].map(([name, key, value]) =>
    figure(name, say(key), value, () => say(`${key}_note`, { n: size.value + 1 })),
  );
  const kept = result("kept", () => say("prune_kept", { kept: now().cut.accepted_path.length }));
  const view = () => ({
    label: say("prune_chart"),
    xName: say("prune_axis"),
    yName: say("prune_curve"),
    xTicks: TICKS.filter((tick) => tick <= most),
    mark: [size.value, now().rate],
    points: [...costs].map(([n, { rate }]) => [n, rate]),
  });
  const curve = chart("tree-sizes", "small-chart", view, size.move);
  return {
    screen: [
      row(size),
      group("figures")(...figures),
      lesson.tree(() => ({ lane, step: now().cut })),
      group("prune-below")(group("")(kept, lesson.stepLine(lane, step)), curve),
      lesson.sourceLine(),
    ],
    demo: [() => size.move(4), () => size.move(Math.min(24, most))],
  };
}
