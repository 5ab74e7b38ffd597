// Stop 7: guess which path the target keeps, then see its choices and the result. Three steps, with a score.

import { counted, h, number, say } from "../../base/dom.js";
import { endOf, nameOf, pathTo } from "../../data/history.js";
import { button, drawAll, filled, group, result, row } from "../controls.js";
import { favourite, pick, pruned, whole } from "../data.js";

const CANDIDATES = 12;
const ROUNDS = 3;
const START = { round: 0, phase: 1, guess: null, score: 0, tokens: 0 };

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
  const now = () => steps[state.round];
  const isDone = () => state.phase === 3 && state.round === rounds - 1;

  const title = filled(h("h3", { "data-result": "round" }), () =>
    say("verdict_round", { n: state.round + 1 }),
  );
  const score = filled(h("span.score.tabular", { "data-result": "score" }), () =>
    say("verdict_score", { score: number(state.score, 0), rounds }),
  );
  const act = filled(button("reveal", "", advance), () =>
    isDone()
      ? say("verdict_restart")
      : say(["verdict_reveal", "verdict_keep", "verdict_next"][state.phase - 1]),
  );
  const tree = lesson.tree(
    () => ({ lane, step: now(), phase: state.phase, mark: state.guess }),
    choose,
  );

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
    const { round, phase, guess } = state;
    if (isDone()) Object.assign(state, START);
    else if (phase === 3) Object.assign(state, { round: round + 1, phase: 1, guess: null });
    else if (guess !== null) state.phase += 1;
    if (phase !== 2) return;
    state.tokens += now().accepted_path.length + 1;
    if (guess === endOf(now())) state.score += 1;
  }

  // Used by the forward key in projector mode: without a choice of the visitor, choose the end of the draft's best path
  function play() {
    if (state.phase === 1 && state.guess === null) choose(favourite(now()).at(-1) ?? 0);
    act.element.click();
  }

  function sentence() {
    const { phase, guess } = state;
    if (phase === 1 && guess === null) return say("verdict_pick");
    if (phase === 1) return say("verdict_picked", { path: pathWords(guess) });
    if (phase === 2) return say("verdict_checked");
    const kept = now().accepted_path.length;
    const end = endOf(now());
    const values = { kept, total: counted("token", kept + 1), path: pathWords(end) };
    const outcome = say(guess === end ? "verdict_hit" : "verdict_miss", values);
    return isDone() ? `${outcome} ${say("verdict_end", state)}` : outcome;
  }

  const screen = [group("verdict-head")(title, score), row(act), tree, result("verdict", sentence)];
  return { screen, demo: Array.from({ length: 3 * rounds - 1 }, () => play) };
}
