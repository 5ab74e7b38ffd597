// Stops 3 and 4: two experts over the same candidates, mixed anew; and the branch made of their difference.

import { counted, filledBar, h, number, say, wholePercent } from "../../base/dom.js";
import { depthOf, nameOf, passesOf, pathTo, rootName } from "../../data/history.js";
import { lessonControls } from "../controls.js";
import { lessonData } from "../data.js";
import { isFromPair, weightsOf } from "../../tree/evidence.js";
import { markerSample } from "../../tree/marker.js";

const FEWEST = 4;

// The steps in which the experts order most and fewest pairs differently; among equals, how many candidates move decides
function chooseSteps(lane) {
  const drafted = lessonData.whole(lane);
  const fit = drafted.filter((step) => lessonData.firstLevel(step).length >= FEWEST);
  const steps = fit.length > 1 ? fit : drafted;
  const apart = (step) => lessonData.disagreement(step) + lessonData.moved(step) / 100;
  const differ = lessonData.pick(steps, apart);
  const agree = lessonData.pick(steps.filter((step) => step !== differ), (step) => -apart(step));
  return { differ, agree };
}

function list(lane, step, key, lesson) {
  const rows = h("ol", { class: "rank-list", "data-list": key });
  const moved = h("p", { class: "result", "data-result": `moved-${key}` });
  const original = lessonData.ranked(step, lessonData.ownWeight(step)).map(([i]) => i);

  function draw(second) {
    const order = lessonData.ranked(step, second ?? lessonData.ownWeight(step));
    const highest = order[0][1];
    const weights = order.map(([, score]) => Math.exp(score - highest));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const away = order.filter(([i], place) => original[place] !== i).length;
    rows.replaceChildren(...order.map(([i], place) => {
      const node = step.nodes[i];
      const proposer = lane.proposers.of(node);
      const change = original.indexOf(i) - place;
      const words = change ? say(change > 0 ? "moved_up" : "moved_down", { n: Math.abs(change) }) : "";
      return h("li", { class: "rank-row", "data-node": i },
        h("span", { class: "rank tabular muted" }, String(place + 1)), markerSample(proposer),
        h("bdi", { class: `mono rank-token ${proposer.classes}` }, nameOf(lane, node.token_id, node.piece)),
        filledBar("fill-muted", weights[place] / total),
        h("span", { class: "tabular rank-share" }, wholePercent(weights[place] / total)),
        h("span", { class: "tabular rank-change" }, words));
    }));
    moved.textContent = say("experts_moved", { moved: away, n: order.length });
  }

  const [first, second] = weightsOf(step.nodes[lessonData.firstLevel(step)[0]]);
  return { draw,
    element: h("section", { class: "rank-box", "aria-label": say(`experts_${key}`) }, h("h3", null, say(`experts_${key}`)),
      h("p", { class: "muted small" }, say("experts_text", { text: rootName(lane, step.index, 3) }), " · ",
        say("experts_router", { first: wholePercent(first), second: wholePercent(second) })), rows, moved,
      h("p", { class: "muted small" }, say("experts_pairs", { share: wholePercent(lessonData.disagreement(step)) })),
      lesson.stepLine(lane, step)) };
}

export function expertsStop(lesson) {
  const lane = lesson.greedy.drafted;
  const { differ, agree } = chooseSteps(lane);
  const lists = [list(lane, differ, "differ", lesson), list(lane, agree, "agree", lesson)];
  let touched = false;
  const mix = lessonControls.slider({ name: "mix", label: say("mix"), min: 0, max: 100,
    value: Math.round(lessonData.ownWeight(differ) * 100),
    format: (value) => say("mix_value", { first: wholePercent(1 - value / 100), second: wholePercent(value / 100) }),
    onInput: () => (touched = true) });
  const ends = h("div", { class: "mix-ends" },
    lane.proposers.all.slice(0, 2).map((expert) => h("span", null, markerSample(expert), ` ${expert.label}`)));
  // Until the slider is moved, each list stands as its own router had it
  const draw = () => lists.forEach((one) => one.draw(touched ? mix.value / 100 : undefined));
  const reset = lessonControls.button("mix-reset", say("speed_reset"), () => {
    touched = false;
    mix.set(Math.round(lessonData.ownWeight(differ) * 100));
  });
  return { screen: [h("div", { class: "lesson-controls" }, mix.element, reset), ends,
    h("div", { class: "rank-boxes" }, lists.map((one) => one.element)),
    h("p", { class: "muted small" }, say("experts_share"))], draw, demo: [() => mix.move(0), () => mix.move(100), () => reset.click()] };
}

// ---- stop 4 ------------------------------------------------------------------------------------------------
const contrastiveNodes = (step) => step.nodes.filter(isFromPair).length;

// Keeps the paths that lead into the last two levels and little else, so that these stand out
function lastLevels(step) {
  const keep = new Set([0]);
  const add = (i) => pathTo(step.nodes, i).forEach((at) => keep.add(at));
  const deepest = lessonData.byScore(step).filter((i) => isFromPair(step.nodes[i])).slice(0, 7);
  deepest.forEach(add);
  const above = depthOf(step) - 1;
  lessonData.byScore(step).filter((i) => step.nodes[i].depth === above).slice(0, 6).forEach(add);
  step.accepted_path.forEach(add);
  return lessonData.stepWith(step, keep);
}

export function contrastiveStop(lesson) {
  const lane = lesson.pairs.shallow.drafted;
  const accepted = (step) => step.accepted_path.some((i) => isFromPair(step.nodes[i]));
  const step = lessonData.pick(lessonData.whole(lane), (one) => contrastiveNodes(one) + (accepted(one) ? 100 : 0));
  const tree = lesson.tree();
  const line = lessonControls.result("branch");
  const gain = h("p", { "data-result": "branch-gain" });
  const toggle = lessonControls.onOff("branch", say("contrastive_switch"));
  const count = lessonData.drafted(lane)
    .reduce((sum, one) => sum + one.accepted_path.filter((i) => isFromPair(one.nodes[i])).length, 0);

  function draw() {
    const on = toggle.value === "on";
    const whole = on ? step : lessonData.withoutContrastive(step);
    const small = on ? lastLevels(step) : lessonData.withoutContrastive(lastLevels(step));
    const passes = passesOf(whole);
    tree.draw(lane, step.index, small, { phase: 3 });
    line.textContent = say("contrastive_line", { levels: counted("level", depthOf(whole)),
      passes: say(passes === 1 ? "head_pass_one" : "head_pass_many", { n: passes }) });
  }

  gain.textContent = `${say("contrastive_gain", {
    without: number(lessonData.expectedTokens(lessonData.withoutContrastive(step)), 2),
    with: number(lessonData.expectedTokens(step), 2),
  })} ${say("contrastive_accepted", { n: count })}`;
  return {
    screen: [h("div", { class: "lesson-controls" }, toggle.element, line), tree.element, gain, lesson.stepLine(lane, step)],
    draw, demo: [() => toggle.press("off"), () => toggle.press("on")] };
}
