// Stop 3: the same candidates, ranked with other weights of the two experts. Stop 4: the contrastive branch.

import { counted, filledBar, h, number, say, wholePercent } from "../../base/dom.js";
import { depthOf, nameOf, passesOf, pathTo, rootName } from "../../data/history.js";
import { button, filled, group, line, onOff, result, row, slider } from "../controls.js";
import {
  byScore,
  disagreement,
  drafted,
  expectedTokens,
  firstLevel,
  moved,
  ownWeight,
  pick,
  ranked,
  stepWith,
  whole,
  withoutContrastive,
} from "../data.js";
import { isFromPair, weightsOf } from "../../tree/evidence.js";
import { markerSample } from "../../tree/marker.js";

const FEWEST = 4;

// The steps with the most and the least disagreement of the experts; on a tie, with the most and the fewest moved candidates
function chooseSteps(lane) {
  const fit = whole(lane).filter((step) => firstLevel(step).length >= FEWEST);
  const steps = fit.length > 1 ? fit : whole(lane);
  const apart = (step) => disagreement(step) + moved(step) / 100;
  const differ = pick(steps, apart);
  return {
    differ,
    agree: pick(
      steps.filter((step) => step !== differ),
      (step) => -apart(step),
    ),
  };
}

// The candidates of a step, ranked with the weight `second()` of expert 2; undefined means the router's own weight
function list(lane, step, key, lesson, second) {
  const original = ranked(step, ownWeight(step)).map(([i]) => i);
  const order = () => ranked(step, second() ?? ownWeight(step));

  function rows() {
    const now = order();
    const weights = now.map(([, score]) => Math.exp(score - now[0][1]));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return now.map(([i], place) => {
      const node = step.nodes[i];
      const proposer = lane.proposers.of(node);
      const change = original.indexOf(i) - place;
      return h(
        "li.rank-row",
        { "data-node": i },
        h("span.rank.tabular.muted", String(place + 1)),
        markerSample(proposer),
        h(
          "bdi",
          { class: `mono rank-token ${proposer.classes}` },
          nameOf(lane, node.token_id, node.piece),
        ),
        filledBar("fill-muted", weights[place] / total),
        h("span.tabular.rank-share", wholePercent(weights[place] / total)),
        h(
          "span.tabular.rank-change",
          change ? say(change > 0 ? "moved_up" : "moved_down", { n: Math.abs(change) }) : "",
        ),
      );
    });
  }

  const [first, other] = weightsOf(step.nodes[firstLevel(step)[0]]);
  return group("rank-box")(
    h("h3", say(`experts_${key}`)),
    h(
      "p.muted.small",
      say("experts_text", { text: rootName(lane, step.index, 3) }),
      " · ",
      say("experts_router", { first: wholePercent(first), second: wholePercent(other) }),
    ),
    filled(h("ol.rank-list", { "data-list": key }), rows),
    line(
      `moved-${key}`,
      () =>
        say("experts_moved", {
          moved: order().filter(([i], place) => original[place] !== i).length,
          n: original.length,
        }),
      "result",
    ),
    h("p.muted.small", say("experts_pairs", { share: wholePercent(disagreement(step)) })),
    lesson.stepLine(lane, step),
  );
}

export function expertsStop(lesson) {
  const lane = lesson.greedy.drafted;
  const { differ, agree } = chooseSteps(lane);
  const own = Math.round(ownWeight(differ) * 100);
  const mix = slider({
    name: "mix",
    label: say("mix"),
    min: 0,
    max: 100,
    value: own,
    format: (value) =>
      say("mix_value", { first: wholePercent(1 - value / 100), second: wholePercent(value / 100) }),
  });
  // Until the slider is moved, each list has the weights of its own router
  let touched = false;
  mix.element.addEventListener("input", () => (touched = true));
  const reset = button("mix-reset", say("speed_reset"), () => {
    touched = false;
    mix.set(own);
  });
  const second = () => (touched ? mix.value / 100 : undefined);
  const lists = [
    list(lane, differ, "differ", lesson, second),
    list(lane, agree, "agree", lesson, second),
  ];
  return {
    screen: [
      row(mix, reset),
      h(
        "div.mix-ends",
        lane.proposers.all
          .slice(0, 2)
          .map((expert) => h("span", markerSample(expert), ` ${expert.label}`)),
      ),
      group("rank-boxes")(...lists),
      h("p.muted.small", say("experts_share")),
    ],
    demo: [() => mix.move(0), () => mix.move(100), () => reset.click()],
  };
}

// Stop 4 shows mainly the paths that lead into the last two levels
function lastLevels(step) {
  const keep = new Set([0]);
  const add = (i) => pathTo(step.nodes, i).forEach((at) => keep.add(at));
  byScore(step)
    .filter((i) => isFromPair(step.nodes[i]))
    .slice(0, 7)
    .forEach(add);
  const above = depthOf(step) - 1;
  byScore(step)
    .filter((i) => step.nodes[i].depth === above)
    .slice(0, 6)
    .forEach(add);
  step.accepted_path.forEach(add);
  return stepWith(step, keep);
}

export function contrastiveStop(lesson) {
  const lane = lesson.pairs.shallow.drafted;
  const accepted = (step) => step.accepted_path.filter((i) => isFromPair(step.nodes[i])).length;
  const step = pick(
    whole(lane),
    (one) => one.nodes.filter(isFromPair).length + (accepted(one) ? 100 : 0),
  );
  const toggle = onOff("branch", say("contrastive_switch"));
  const shown = (of) => (toggle.value === "on" ? of : withoutContrastive(of));
  const branch = result("branch", () => {
    const passes = passesOf(shown(step));
    return say("contrastive_line", {
      levels: counted("level", depthOf(shown(step))),
      passes: say(passes === 1 ? "head_pass_one" : "head_pass_many", { n: passes }),
    });
  });
  const count = drafted(lane).reduce((sum, one) => sum + accepted(one), 0);
  const gain = say("contrastive_gain", {
    without: number(expectedTokens(withoutContrastive(step)), 2),
    with: number(expectedTokens(step), 2),
  });
  return {
    screen: [
      row(toggle, branch),
      lesson.tree(() => ({ lane, step: shown(lastLevels(step)) })),
      h(
        "p",
        { "data-result": "branch-gain" },
        `${gain} ${say("contrastive_accepted", { n: count })}`,
      ),
      lesson.stepLine(lane, step),
    ],
    demo: [() => toggle.press("off"), () => toggle.press("on")],
  };
}
