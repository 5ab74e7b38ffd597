// What the view shows: run, step, phase and tab, and the questions about it that several parts ask.

const screen = {
  parts: null,
  state: {
    tab: "watch", run: null, waiting: null, index: 0, follow: true, phase: 3, guess: false, playing: false, time: null,
    sought: false, pace: "1", choices: false, showAll: false, list: false, spaces: false, markdown: false,
    plotMode: "tokens", turns: [], from: null, replaced: [], putAway: null, armed: false, until: null, lost: null, seen: new Set(),
  },
};
const { state } = screen;

const lane = () => state.run && state.run.main;
const live = () => Boolean(state.run && !state.run.finished);
const guessing = () => state.guess && state.phase < 3;
const lastClock = (run) => Math.max(...Object.values(run.lanes).map((one) => one.clock));

// Steps of the main lane that may be shown now: all, those up to the playing time, or those before the open guess
function stepsShown() {
  const main = lane();
  if (!main) return 0;
  if (guessing()) return state.index;
  if (state.time !== null) return main.stepsAt(state.time);
  return main.steps.length;
}

// The race time on screen: while lanes run it is the slowest clock, and a chosen step has its own
function raceTime() {
  if (!state.run) return 0;
  if (state.time !== null) return state.time;
  const running = Object.values(state.run.lanes).filter((one) => !one.endReason);
  if (state.follow && live() && running.length) return Math.min(...running.map((one) => one.clock));
  const main = lane();
  if (!main || !main.steps.length) return Infinity;
  const chosen = live() || (state.sought && state.index < main.steps.length - 1);
  return chosen ? main.seconds[state.index] : Infinity;
}

export const screen = Object.assign(screen, { lane, live, guessing, lastClock, stepsShown, raceTime });
