// Moving through steps: seeking, following the live end, guessing first, and playing a finished answer at its own pace.

import { askArmed } from "../chat/asking.js";
import { redraw } from "./schedule.js";
import { screen } from "./state.js";
import { opening } from "../watch/opening.js";

const { state, lane, live, guessing, lastClock } = screen;

const OPENING_PACE = 0.25;

function seek(index) {
  const main = lane();
  if (!main || !main.steps.length || Number.isNaN(index)) return;
  state.index = Math.max(0, Math.min(main.steps.length - 1, index));
  state.follow = live() && !state.guess && state.index === main.steps.length - 1;
  Object.assign(state, { playing: false, time: null, sought: true, until: null });
  if (state.guess) state.phase = 1;
  redraw();
}

function follow() {
  state.guess = false;
  state.phase = 3;
  seek(Infinity);
}

function setPhase(phase) {
  state.phase = phase;
  redraw();
}

function guessFirst(on) {
  Object.assign(state, { guess: on, phase: on ? 1 : 3, follow: !on && live() && state.follow, playing: false, time: null });
  redraw();
}

// In the race there is nothing to go through: it runs
export const racing = () => state.tab === "race" && Boolean(state.run) && !live();

// Space: as the clicker while a question waits or somebody guesses, else play and pause
export const advance = () => (state.armed || state.guess ? ahead() : play());

// A clicker's two keys: what comes next (the question that waits, the race, the verdict, a step), and what was before
function ahead() {
  if (state.armed) askArmed();
  else if (racing()) play(state.time === null);
  else if (guessing()) setPhase(3);
  else seek(state.index + 1);
}

function back() {
  state.armed = false;
  if (state.guess && state.phase === 3) setPhase(1);
  else seek(state.index - 1);
}

let playedAt = 0;
function play(fromStart) {
  const { run } = state;
  if (!run || !lane() || !lane().steps.length) return;
  if (live()) {
    if (state.follow) seek(state.index - 1);
    else follow();
    return;
  }
  if (state.playing) {
    Object.assign(state, { playing: false, until: null });
    redraw();
    return;
  }
  if (state.pace === "step") {
    seek(state.index + 1);
    return;
  }
  const atEnd = state.time === null || state.time >= lastClock(run);
  state.time = fromStart || (atEnd && state.index >= lane().steps.length - 1) ? 0
    : state.time ?? lane().seconds[state.index];
  Object.assign(state, { guess: false, phase: 3, playing: true, sought: false });
  run.played = true;
  playedAt = performance.now();
  requestAnimationFrame(tick);
}

// Plays from the start, at a quarter of the real pace, up to a step, and waits there
function playTo(index) {
  state.until = index;
  play(true);
}

function tick(now) {
  if (!state.playing) return;
  const end = state.until === null ? lastClock(state.run) : lane().seconds[state.until];
  const pace = state.until === null ? Number(state.pace) : OPENING_PACE;
  state.time = Math.min(end, state.time + (Math.max(0, now - playedAt) / 1000) * pace);
  playedAt = now;
  const index = Math.max(0, lane().stepsAt(state.time) - 1);
  const moved = index !== state.index;
  state.index = index;
  if (state.time >= end) {
    state.playing = false;
    state.time = null;
    if (state.until !== null) {
      state.until = null;
      opening.explain();
    } else if (state.run.rest !== undefined) state.index = state.run.rest;
    redraw();
    return;
  }
  redraw("text", "bar", "plot", "numbers", ...(moved ? ["tree"] : []));
  requestAnimationFrame(tick);
}

// In the race a recording that has not been played yet waits at its start
export function toTheStart() {
  const { run } = state;
  if (!run || run.source !== "recording" || run.played || !run.plain || state.playing) return;
  state.time = 0;
  state.index = 0;
}

// Elsewhere it rests on its highlight
export function fromTheStart() {
  if (state.time !== 0 || state.playing) return;
  state.time = null;
  state.index = state.run.rest || 0;
}

export const moves = { seek, follow, play, playTo, setPhase, guessFirst, advance, ahead, back, state };
