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
  const others = steps.filter((step) => step !== differ);
  return { differ, agree: pick(others, (step) => -apart(step)) };
}

const mixOf = ([first, second]) => ({
  first: wholePercent(first),
  second: wholePercent(second),
});

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
      const share = weights[place] / total;
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
        filledBar("fill-muted", share),
        h("span.tabular.rank-share", wholePercent(share)),
        h(
          "span.tabular.rank-change",
          change ? say(change > 0 ? "moved_up" : "moved_down", { n: Math.abs(change) }) : "",
        ),
      );
    });
  }

  function movedWords() {
    const moved = order().filter(([i], place) => original[place] !== i).length;
    return say("experts_moved", { moved, n: original.length });
  }

  const text = say("experts_text", { text: rootName(lane, step.index, 3) });
  const router = say("experts_router", mixOf(weightsOf(step.nodes[firstLevel(step)[0]])));
  return group("rank-box")(
    h("h3", say(`experts_${key}`)),
    h("p.muted.small", `${text} · ${router}`),
    filled(h("ol.rank-list", { "data-list": key }), rows),
    line(`moved-${key}`, movedWords, "result"),
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
    format: (value) => say("mix_value", mixOf([1 - value / 100, value / 100])),
  });
  // Until the slider is moved, each list has the weights of its own router
  let touched = false;
  mix.element.addEventListener("input", () => (touched = true));
  const reset = button("mix-reset", say("speed_reset"), () => {
    touched = false;
    mix.set(own);
  });
  const second = () => (touched ? mix.value / 100 : undefined);
  const experts = lane.proposers.all.slice(0, 2);
  return {
    screen: [
      row(mix, reset),
      h(
        "div.mix-ends",
        experts.map((expert) => h("span", markerSample(expert), ` ${expert.label}`)),
      ),
      group("rank-boxes")(
        list(lane, differ, "differ", lesson, second),
        list(lane, agree, "agree", lesson, second),
      ),
      h("p.muted.small", say("experts_share")),
    ],
    demo: [() => mix.move(0), () => mix.move(100), () => reset.click()],
  };
}

// Stop 4 shows mainly the paths that lead into the last two levels
function lastLevels(step) {
  const { nodes } = step;
  const above = depthOf(step) - 1;
  const contrastive = byScore(step).filter((i) => isFromPair(nodes[i]));
  const others = byScore(step).filter((i) => nodes[i].depth === above);
  const ends = [...contrastive.slice(0, 7), ...others.slice(0, 6), ...step.accepted_path];
  return stepWith(step, new Set([0, ...ends.flatMap((i) => pathTo(nodes, i))]));
}

export function contrastiveStop(lesson) {
  const lane = lesson.pairs.shallow.drafted;
  const accepted = (step) => step.accepted_path.filter((i) => isFromPair(step.nodes[i])).length;
  const worth = (step) => step.nodes.filter(isFromPair).length + (accepted(step) ? 100 : 0);
  const step = pick(whole(lane), worth);
  const toggle = onOff("branch", say("contrastive_switch"));
  const shown = (of) => (toggle.value === "on" ? of : withoutContrastive(of));
  const branch = result("branch", () => {
    const n = passesOf(shown(step));
    const passes = say(n === 1 ? "head_pass_one" : "head_pass_many", { n });
    return say("contrastive_line", { levels: counted("level", depthOf(shown(step))), passes });
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
