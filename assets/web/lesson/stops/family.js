// Stop 10: one answer written by five methods; their candidates at positions where a step of each starts.

import { counted, h, number, say, table } from "../../base/dom.js";
import { passesOf, rootName } from "../../data/history.js";
import { metrics } from "../../data/metrics.js";
import { buttons, choice, line, filled, raceButton, result, row, slider } from "../controls.js";
import { pick } from "../data.js";

const stepAt = (lane, count) => lane.steps.findIndex((_, i) => lane.countAfter(i - 1) === count);

// Numbers of written tokens at which every lane starts a step, as {count, indices by lane}
function commonPlaces(lanes) {
  const counts = lanes[0].steps.map((_, first) => lanes[0].countAfter(first - 1));
  return counts
    .map((count) => ({ count, indices: lanes.map((lane) => stepAt(lane, count)) }))
    .filter(({ indices }) => indices.every((index) => index >= 0));
}

const candidates = (step) => step.nodes.length - 1;

export function familyStop(lesson) {
  const { lanes } = lesson.pairs.family;
  const places = commonPlaces(lanes);
  const stepsAt = ({ indices }) => lanes.map((lane, i) => lane.steps[indices[i]]);
  // At first, show the place at which most methods drafted and the most guesses were kept
  const worth = (place) =>
    stepsAt(place).reduce(
      (sum, step) => sum + (candidates(step) ? 10 : 0) + step.accepted_path.length,
      0,
    );
  const slide = slider({
    name: "place",
    label: say("family_place"),
    min: 1,
    max: places.length,
    value: places.indexOf(pick(places, worth)) + 1,
    format: (n) => say("family_place_value", { n, of: places.length }),
  });
  const methods = choice({
    name: "method",
    label: say("family_method"),
    options: Object.fromEntries(lanes.map((lane, i) => [i, lane.title])),
    value: 0,
  });
  const place = () => places[slide.value - 1];
  const lane = () => lanes[methods.value];
  const step = () => lane().steps[place().indices[methods.value]];
  const HEADS = ["method", "candidates", "passes", "kept", "tau"];
  const heads = HEADS.map((key) => say(`family_${key}`));
  const after = () =>
    say("family_after", { text: rootName(lane(), step().index, 8), n: place().count });

  function sentence() {
    const count = candidates(step());
    if (!count) return say("family_none", { method: lane().title });
    const kept = step().accepted_path.length;
    return say("family_line", {
      method: lane().title,
      candidates: counted("candidate", count),
      kept,
    });
  }

  const facts = () =>
    stepsAt(place()).map((one, i) => [
      lanes[i].title,
      number(candidates(one), 0),
      number(passesOf(one), 0),
      number(one.accepted_path.length, 0),
      number(metrics.tau(lanes[i].steps), 2),
    ]);

  return {
    screen: [
      row(methods),
      row(slide),
      line("place", after, "muted small"),
      lesson.tree(() => ({ lane: lane(), step: step() })),
      result("family", sentence),
      filled(h("div.family-table"), () => table(say("family_table"), heads, facts())),
      filled(h("div"), () => lesson.stepLine(lane(), step())),
      buttons(raceButton()),
    ],
  };
}
