// The first seconds: the recording that the page opens on plays slowly up to a step in which both experts were right, and
// shows there one phase after the other.

import { deliveredPath } from "../data/history.js";
import { moves } from "../page/moves.js";
import { screen } from "../page/state.js";
import { highlight } from "../page/view.js";

const { state } = screen;

const PHASE_MS = 2500;
const EARLY = 10;

// By how many experts a step's accepted guesses were made
const speakers = (step) => new Set(deliveredPath(step).map((i) => step.nodes[i].proposer)).size;

// The step to wait at: the first early one in which two were right, beside guesses that were refused where there is such a
// one, else the one by which both had been
function begin(run) {
  const early = run.main.steps.slice(0, EARLY);
  const both = early.filter((step) => speakers(step) > 1);
  const shown = both.find((step) => step.nodes.length - 1 > step.accepted_path.length) || both[0];
  if (shown) return shown.index;
  const seen = new Set();
  const by = early.findIndex((step) => {
    deliveredPath(step).forEach((i) => seen.add(step.nodes[i].proposer));
    return seen.size > 1;
  });
  return by >= 0 ? by : highlight(run.main);
}

// The three phases one after the other; whoever moves ends it
function explain() {
  const { run } = state;
  state.index = run.rest;
  const show = (phase) => {
    const untouched = state.run === run && state.index === run.rest && !state.playing && !state.guess;
    if (!untouched || (phase > 1 && state.phase !== phase - 1)) return;
    moves.setPhase(phase);
    if (phase < 3) setTimeout(() => show(phase + 1), PHASE_MS);
  };
  show(1);
}

export const opening = { begin, explain };
