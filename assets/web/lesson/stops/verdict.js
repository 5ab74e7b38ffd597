// Stop 7: guess which path the target keeps, then see its choices and the result. Three steps, with a score.

import { counted, h, number, say } from "../../base/dom.js";
import { endOf, nameOf, pathTo } from "../../data/history.js";
import { button, drawAll, filled, group, result, row } from "../controls.js";
import { favourite, pick, pruned, whole } from "../data.js";

const CANDIDATES = 12;
const ROUNDS = 3;
const START = { round: 0, phase: 1, guess: null, score: 0, tokens: 0, done: false };

// Three steps, with accepted paths of 2, 0 and 4 tokens, or the closest lengths in the recording
function chooseSteps(lane) {
  const steps = whole(lane);
  const kept = (step) => pruned(step, CANDIDATES).accepted_path.length;
  const chosen = [];
  for (const length of [2, 0, 4]) {
    const left = steps.filter((step) => !chosen.includes(step));
    if (left.length)
      chosen.push(pick(left, (step) => -Math.abs(kept(step) - length) - step.index / 1000));
  }
  return chosen;
}

export function verdictStop(lesson) {
  const lane = lesson.greedy.drafted;
  const steps = chooseSteps(lane).map((step) => pruned(step, CANDIDATES));
  const rounds = Math.min(ROUNDS, steps.length);
  const state = { ...START };

  const title = filled(h("h3", { "data-result": "round" }), () =>
    say("verdict_round", { n: state.round + 1 }),
  );
  const score = filled(h("span.score.tabular", { "data-result": "score" }), () =>
    say("verdict_score", { score: number(state.score, 0), rounds }),
  );
  const act = filled(button("reveal", "", advance), () =>
    say(
      state.done
        ? "verdict_restart"
        : ["verdict_reveal", "verdict_keep", "verdict_next"][state.phase - 1],
    ),
  );
  const tree = lesson.tree(
    () => ({ lane, step: now(), phase: state.phase, mark: state.guess }),
    (i) => choose(i),
  );
  const now = () => steps[state.round];

  function pathWords(i) {
    const { nodes } = now();
    const path = pathTo(nodes, i).map((at) => nameOf(lane, nodes[at].token_id, nodes[at].piece));
    return path.length ? path.join(" ") : say("verdict_none");
  }

  function choose(i) {
    if (state.phase > 1 || i === "bonus") return;
    state.guess = i;
    drawAll(screen);
  }

  function advance() {
    if (state.done) Object.assign(state, START);
    else if (state.phase === 1) state.phase = state.guess === null ? 1 : 2;
    else if (state.phase === 2) {
      state.phase = 3;
      state.tokens += now().accepted_path.length + 1;
      if (state.guess === endOf(now())) state.score += 1;
      if (state.round === rounds - 1) state.done = true;
    } else Object.assign(state, { round: state.round + 1, phase: 1, guess: null });
  }

  // Used by the forward key in projector mode: without a choice of the visitor, choose the end of the draft's best path
  function play() {
    if (state.phase === 1 && state.guess === null) choose(favourite(now()).at(-1) ?? 0);
    act.element.click();
  }

  function sentence() {
    const cut = now();
    if (state.phase === 1)
      return state.guess === null
        ? say("verdict_pick")
        : say("verdict_picked", { path: pathWords(state.guess) });
    if (state.phase === 2) return say("verdict_checked");
    const kept = cut.accepted_path.length;
    const values = { kept, total: counted("token", kept + 1), path: pathWords(endOf(cut)) };
    const found = say(state.guess === endOf(cut) ? "verdict_hit" : "verdict_miss", values);
    return state.done
      ? `${found} ${say("verdict_end", { score: state.score, tokens: state.tokens })}`
      : found;
  }

  const screen = [group("verdict-head")(title, score), row(act), tree, result("verdict", sentence)];
  return { screen, demo: Array.from({ length: 3 * rounds - 1 }, () => play) };
}
