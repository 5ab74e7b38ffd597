// Part of stop 8: one word of the recorded text with its five likeliest tokens, and what temperature and top-p make of them.

import { filledBar, h, percent, say } from "../../base/dom.js";
import { nameOf, textOf } from "../../data/history.js";
import { button, filled, group, line, result, slider } from "../controls.js";

const BEFORE = 24; // characters of the text before the word
const LEAST_TOP_P = 0.1;

// The share of each among these, from their logs at temperature 1, best first; 0 for what top-p drops
function sharesAt(logs, temperature, topP) {
  const weights = logs.map((log) => (temperature ? Math.exp((log - logs[0]) / temperature) : Number(log === logs[0])));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let before = 0;
  const kept = weights.map((weight) => {
    const stays = before < topP * total;
    before += weight;
    return stays ? weight : 0;
  });
  const rest = kept.reduce((sum, weight) => sum + weight, 0);
  return kept.map((weight) => weight / rest);
}

// The word whose first choice is least sure
function openPlace(lane) {
  const surest = lane.tokens.map((_, i) => lane.alternativesAt(i)?.tokens[1]?.[2] ?? 0);
  return surest.indexOf(Math.min(...surest));
}

// `laneNow()` is the lane whose words it is about
export function chancesBox(laneNow) {
  let lane = null;
  let place = 0;
  const make = (name, settings) => slider({ name, label: say(`chances_${name.replace("-", "_")}`),
    format: (value) => value.toFixed(settings.step < 0.1 ? 2 : 1), ...settings });
  const temperature = make("temperature", { min: 0, max: 2, step: 0.1, value: 1 });
  const topP = make("top-p", { min: LEAST_TOP_P, max: 1, step: 0.05, value: 1 });
  const go = (by) => () => (place = Math.max(0, Math.min(lane.tokens.length - 1, place + by)));
  const tokens = () => lane.alternativesAt(place).tokens.slice(1);
  const shares = () => sharesAt(tokens().map(([, , log]) => log), temperature.value, topP.value);

  function rows() {
    const [came] = lane.alternativesAt(place).tokens;
    const now = shares();
    return tokens().map(([id, piece], i) => h("div", { class: now[i] ? "chance" : "chance dropped", "data-share": now[i].toFixed(4) },
      h("bdi", { class: "mono" }, nameOf(lane, id, piece)), filledBar(id === came[0] ? "fill-ink" : "fill-rest", now[i]),
      h("span", { class: "tabular" }, now[i] ? percent(now[i]) : say("chances_dropped")),
      h("span", null, id === came[0] ? `✓ ${say("alternatives_came")}` : "")));
  }

  const words = line("chances-place", () => [say("chances_after", { n: place + 1 }), " ",
    h("bdi", { class: "mono" }, `…${Array.from(textOf(lane, place)).slice(-BEFORE).join("")}`)], "chances-words");
  const box = group("chances-box")(h("h3", null, say("chances_title")),
    group("chances-place")(button("word-before", "‹", go(-1)), button("word-after", "›", go(1)), words),
    group("chances-sliders")(temperature, topP), filled(h("div", { class: "chances" }), rows),
    result("chances", () => say("chances_result", { kept: shares().filter(Boolean).length, all: tokens().length })),
    h("p", { class: "muted small" }, say("chances_note")));
  return {
    element: box.element,
    draw() {
      const next = laneNow();
      if (next !== lane) [lane, place] = [next, openPlace(next)];
      box.draw();
    },
    demo: [() => temperature.move(2), () => topP.move(0.6)],
  };
}
