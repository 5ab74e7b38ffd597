// Stop 8: plain decoding and Jakiro at temperature 1, side by side: same dice, same text; without them in the draft only
// the number of steps changes.

import { h, number, say } from "../../base/dom.js";
import { metrics } from "../../data/metrics.js";
import { choice, figure, group, line, onOff, result, row } from "../controls.js";
import { chancesBox } from "./chances.js";
import { AnswerView } from "../../watch/answer.js";

const SEEDS = [1, 2];

function compare({ drafted, plain }) {
  const different = metrics.partsAt({ main: drafted, plain });
  return { same: different === null, token: different + 1, tokens: drafted.tokens.length };
}

export function diceStop(lesson) {
  // Plain decoding does not draft, so it was recorded once for each seed
  const pairOf = (n, shared) => ({ plain: lesson.pairs[`seed-${n}-shared`].plain,
    drafted: lesson.pairs[`seed-${n}-${shared ? "shared" : "own"}`].drafted });
  const seed = choice({ name: "seed", label: say("dice_seed"),
    options: Object.fromEntries(SEEDS.map((n) => [n, say("dice_seed_value", { n })])), value: SEEDS[0] });
  const noise = onOff("noise", say("dice_shared"));
  const pair = () => pairOf(seed.value, noise.value === "on");
  const tauOf = ({ drafted }) => number(metrics.tau(drafted.steps), 2);

  function laneBox(name) {
    const host = h("div");
    const view = new AnswerView(host);
    view.text.dataset.text = name;
    const steps = line(`steps-${name}`, () => {
      const lane = pair()[name];
      view.draw(lane, lane.tokens.length, { live: false, formatted: true });
      return say("dice_steps", { steps: lane.steps.length, tokens: lane.tokens.length });
    }, "muted tabular");
    return group("dice-lane")(h("h3", null, pairOf(SEEDS[0], true)[name].title), host, steps);
  }

  const lanes = ["plain", "drafted"].map(laneBox);
  const same = result("same", () => {
    const found = compare(pair());
    same.element.dataset.same = String(found.same);
    return say(found.same ? "dice_same" : "dice_differ", found);
  }, "same-line");
  const chances = chancesBox(() => pair().drafted);
  return { screen: [row(seed, noise, figure("dice-tau", say("speed_tau"), () => tauOf(pair()), () => say("metric_tau_note"))),
    group("dice-lanes")(...lanes), same, chances, lesson.sourceLine()],
  demo: [() => seed.press(SEEDS[1]), () => noise.press("off"), () => noise.press("on"), ...chances.demo] };
}
