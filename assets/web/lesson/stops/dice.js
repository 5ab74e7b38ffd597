// Stop 8: plain decoding and Jakiro at temperature 1, side by side: same dice, same text; without them in the draft only
// the number of steps changes.

import { h, number, say } from "../../base/dom.js";
import { metrics } from "../../data/metrics.js";
import { lessonControls } from "../controls.js";
import { chancesBox } from "./chances.js";
import { AnswerView } from "../../watch/answer.js";

const SEEDS = [1, 2];

function compare({ drafted, plain }) {
  const different = metrics.partsAt({ main: drafted, plain });
  return { same: different === null, token: different + 1, tokens: drafted.tokens.length };
}

export function diceStop(lesson) {
  // Plain decoding does not draft, so it was recorded once for each seed
  const pairOf = (seed, shared) => ({ plain: lesson.pairs[`seed-${seed}-shared`].plain,
    drafted: lesson.pairs[`seed-${seed}-${shared ? "shared" : "own"}`].drafted });
  const lanes = ["plain", "drafted"].map((name) => {
    const line = h("p", { class: "muted tabular", "data-result": `steps-${name}` });
    const host = h("div");
    const view = new AnswerView(host);
    view.text.dataset.text = name;
    return { name, line, host, view };
  });
  const same = lessonControls.result("same", "same-line");
  const tau = lessonControls.figure("dice-tau", say("speed_tau"), say("metric_tau_note"));
  const seed = lessonControls.choice({ name: "seed", label: say("dice_seed"),
    options: Object.fromEntries(SEEDS.map((n) => [n, say("dice_seed_value", { n })])), value: SEEDS[0] });
  const noise = lessonControls.onOff("noise", say("dice_shared"));
  const chances = chancesBox();
  const tauOf = (pair) => number(metrics.tau(pair.drafted.steps), 2);

  function draw() {
    const pair = pairOf(seed.value, noise.value === "on");
    lanes.forEach(({ name, view, line }) => {
      const lane = pair[name];
      view.draw(lane, lane.tokens.length, { live: false, formatted: true });
      line.textContent = say("dice_steps", { steps: lane.steps.length, tokens: lane.tokens.length });
    });
    const found = compare(pair);
    same.dataset.same = String(found.same);
    same.textContent = found.same ? say("dice_same", found) : say("dice_differ", found);
    tau.set(tauOf(pair));
    chances.draw(pair.drafted);
  }

  const table = lessonControls.closedTable(say("dice_table"), [say("dice_seed"), say("dice_with"), say("dice_without"), say("dice_text")],
    SEEDS.map((n) => [String(n), tauOf(pairOf(n, true)), tauOf(pairOf(n, false)),
      say(compare(pairOf(n, true)).same && compare(pairOf(n, false)).same ? "dice_equal" : "dice_unequal")]));
  return { screen: [h("div", { class: "lesson-controls" }, seed.element, noise.element, tau.element),
    h("div", { class: "dice-lanes" }, lanes.map(({ name, host, line }) =>
      h("section", { class: "dice-lane" }, h("h3", null, pairOf(SEEDS[0], true)[name].title), host, line),
    )), same, chances.element, table, lesson.sourceLine()], draw,
  demo: [() => seed.press(SEEDS[1]), () => noise.press("off"), () => noise.press("on"), ...chances.demo] };
}
