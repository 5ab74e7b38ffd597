// Stop 8: plain decoding and Jakiro at temperature 1: same dice, same text. Below it the effect of temperature and top-p on one
// word.

import { filledBar, h, number, percent, say, sum } from "../../base/dom.js";
import { nameOf, textOf } from "../../data/history.js";
import { metrics } from "../../data/metrics.js";
import {
  button,
  choice,
  figure,
  filled,
  group,
  line,
  onOff,
  result,
  row,
  slider,
} from "../controls.js";
import { AnswerView } from "../../watch/answer.js";

const SEEDS = [1, 2];
const BEFORE = 24; // characters of the text before the word
const LEAST_TOP_P = 0.1;

// Probability of each token among these, best first, from their log probabilities at temperature 1; 0 if top-p drops it
function sharesAt(logs, temperature, topP) {
  const weights = logs.map((log) =>
    temperature ? Math.exp((log - logs[0]) / temperature) : Number(log === logs[0]),
  );
  const total = sum(weights);
  let before = 0;
  const kept = weights.map((weight) => {
    const stays = before < topP * total;
    before += weight;
    return stays ? weight : 0;
  });
  return kept.map((weight) => weight / sum(kept));
}

// The word with the least certain first choice
function openPlace(lane) {
  const surest = lane.tokens.map((_, i) => lane.alternativesAt(i)?.tokens[1]?.[2] ?? 0);
  return surest.indexOf(Math.min(...surest));
}

// `laneNow()` returns the lane on screen
function chancesBox(laneNow) {
  let lane = null;
  let place = 0;
  const make = (name, label, digits, range) =>
    slider({ name, label, value: 1, format: (value) => value.toFixed(digits), ...range });
  const heat = { min: 0, max: 2, step: 0.1 };
  const temperature = make("temperature", say("chances_temperature"), 1, heat);
  const topP = make("top-p", say("chances_top_p"), 2, { min: LEAST_TOP_P, max: 1, step: 0.05 });
  const go = (by) => () => (place = Math.max(0, Math.min(lane.tokens.length - 1, place + by)));
  const tokens = () => lane.alternativesAt(place).tokens.slice(1);
  const logs = () => tokens().map(([, , log]) => log);
  const shares = () => sharesAt(logs(), temperature.value, topP.value);

  function rows() {
    const [came] = lane.alternativesAt(place).tokens;
    const now = shares();
    return tokens().map(([id, piece], i) => {
      const isChosen = id === came[0];
      return h(
        "div",
        { class: now[i] ? "chance" : "chance dropped", "data-share": now[i].toFixed(4) },
        h("bdi.mono", nameOf(lane, id, piece)),
        filledBar(isChosen ? "fill-ink" : "fill-rest", now[i]),
        h("span.tabular", now[i] ? percent(now[i]) : say("chances_dropped")),
        h("span", isChosen ? `✓ ${say("alternatives_came")}` : ""),
      );
    });
  }

  function before() {
    const text = Array.from(textOf(lane, place)).slice(-BEFORE).join("");
    return [say("chances_after", { n: place + 1 }), " ", h("bdi.mono", `…${text}`)];
  }

  const kept = () => shares().filter(Boolean).length;
  const back = button("word-before", "‹", go(-1));
  const next = button("word-after", "›", go(1));
  const box = group("chances-box")(
    h("h3", say("chances_title")),
    group("chances-place")(back, next, line("chances-place", before, "chances-words")),
    group("chances-sliders")(temperature, topP),
    filled(h("div.chances"), rows),
    result("chances", () => say("chances_result", { kept: kept(), all: tokens().length })),
    h("p.muted.small", say("chances_note")),
  );
  return {
    element: box.element,
    draw() {
      const current = laneNow();
      if (current !== lane) [lane, place] = [current, openPlace(current)];
      box.draw();
    },
    demo: [() => temperature.move(2), () => topP.move(0.6)],
  };
}

export function diceStop(lesson) {
  // Plain decoding does not draft, so it was recorded once for each seed
  const pairOf = (n, shared) => ({
    plain: lesson.pairs[`seed-${n}-shared`].plain,
    drafted: lesson.pairs[`seed-${n}-${shared ? "shared" : "own"}`].drafted,
  });
  const seed = choice({
    name: "seed",
    label: say("dice_seed"),
    options: Object.fromEntries(SEEDS.map((n) => [n, say("dice_seed_value", { n })])),
    value: SEEDS[0],
  });
  const noise = onOff("noise", say("dice_shared"));
  const pair = () => pairOf(seed.value, noise.value === "on");
  const tau = () => number(metrics.tau(pair().drafted.steps), 2);

  function laneBox(name) {
    const host = h("div");
    const view = new AnswerView(host);
    view.text.dataset.text = name;
    function steps() {
      const lane = pair()[name];
      view.draw(lane, lane.tokens.length, { live: false, formatted: true });
      return say("dice_steps", { steps: lane.steps.length, tokens: lane.tokens.length });
    }
    const title = h("h3", pairOf(SEEDS[0], true)[name].title);
    return group("dice-lane")(title, host, line(`steps-${name}`, steps, "muted tabular"));
  }

  const same = result("same", comparison, "same-line");
  function comparison() {
    const { drafted, plain } = pair();
    const different = metrics.partsAt({ main: drafted, plain });
    const isSame = different === null;
    same.element.dataset.same = String(isSame);
    const values = { token: different + 1, tokens: drafted.tokens.length };
    return say(isSame ? "dice_same" : "dice_differ", values);
  }

  const chances = chancesBox(() => pair().drafted);
  const note = () => say("metric_tau_note");
  return {
    screen: [
      row(seed, noise, figure("dice-tau", say("speed_tau"), tau, note)),
      group("dice-lanes")(laneBox("plain"), laneBox("drafted")),
      same,
      chances,
      lesson.sourceLine(),
    ],
    demo: [
      () => seed.press(SEEDS[1]),
      () => noise.press("off"),
      () => noise.press("on"),
      ...chances.demo,
    ],
  };
}
