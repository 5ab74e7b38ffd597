// Stop 10: one answer written by five methods; at the places where a step of each begins, what each of them proposed.

import { counted, h, number, say, table } from "../../base/dom.js";
import { passesOf, rootName } from "../../data/history.js";
import { metrics } from "../../data/metrics.js";
import { lessonControls } from "../controls.js";
import { lessonData } from "../data.js";

const stepAt = (lane, count) => lane.steps.findIndex((_, i) => lane.countAfter(i - 1) === count);

// Numbers of written tokens at which every lane begins a step, as {count, indices by lane}
function commonPlaces(lanes) {
  const found = [];
  lanes[0].steps.forEach((_, first) => {
    const count = lanes[0].countAfter(first - 1);
    const indices = lanes.map((lane) => stepAt(lane, count));
    if (indices.every((index) => index >= 0)) found.push({ count, indices });
  });
  return found;
}

const candidates = (step) => step.nodes.length - 1;

export function familyStop(lesson) {
  const lanes = lesson.lanes("family");
  const places = commonPlaces(lanes);
  const stepsAt = ({ indices }) => lanes.map((lane, i) => lane.steps[indices[i]]);
  // To begin with, a place where all of them draft and keep most
  const worth = (place) =>
    stepsAt(place).reduce((sum, step) => sum + (candidates(step) ? 10 : 0) + step.accepted_path.length, 0);
  const tree = lesson.tree();
  const line = lessonControls.result("family");
  const where = h("p", { class: "muted small", "data-result": "place" });
  const tableHost = h("div", { class: "family-table" });
  const source = h("div");
  const slider = lessonControls.slider({ name: "place", label: say("family_place"), min: 1, max: places.length,
    value: places.indexOf(lessonData.pick(places, worth)) + 1, format: (n) => say("family_place_value", { n, of: places.length }) });
  const methods = lessonControls.choice({ name: "method", label: say("family_method"),
    options: Object.fromEntries(lanes.map((lane, i) => [i, lane.title])), value: 0 });

  function draw() {
    const place = places[slider.value - 1];
    const shown = Number(methods.value);
    const steps = stepsAt(place);
    const lane = lanes[shown];
    const step = steps[shown];
    tree.draw(lane, place.indices[shown], step, { phase: 3 });
    line.textContent = candidates(step)
      ? say("family_line", { method: lane.title, candidates: counted("candidate", candidates(step)),
          kept: step.accepted_path.length }) : say("family_none", { method: lane.title });
    where.textContent = say("family_after", { text: rootName(lane, place.indices[shown], 8), n: place.count });
    source.replaceChildren(lesson.stepLine(lane, step));
    tableHost.replaceChildren(table(say("family_table"),
      ["family_method", "family_candidates", "family_passes", "family_kept", "family_tau"].map((key) => say(key)),
      lanes.map((one, i) => [one.title, number(candidates(steps[i]), 0), number(passesOf(steps[i]), 0),
        number(steps[i].accepted_path.length, 0), number(metrics.tau(one.steps), 2)])));
  }

  return { screen: [h("div", { class: "lesson-controls" }, methods.element),
    h("div", { class: "lesson-controls" }, slider.element), where, tree.element, line, tableHost, source,
    h("div", { class: "lesson-buttons" }, lessonControls.raceButton())], draw };
}
