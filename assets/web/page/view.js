// The view: which run is on screen, how live updates make it grow, and the page's tabs.

import { watchConnection } from "../base/connection.js";
import { reducedMotion } from "../base/dom.js";
import { giveBack } from "../chat/asking.js";
import { drawChat } from "../chat/chat.js";
import { restore, tellCut } from "../chat/visit.js";
import { baseline } from "../data/baseline.js";
import { Run, deliveredPath, runFromTraces } from "../data/history.js";
import { fromTheStart, moves, toTheStart } from "./moves.js";
import { buildParts } from "./parts.js";
import { redraw, redrawNow } from "./schedule.js";
import { markSettings } from "./settings.js";
import { screen } from "./state.js";
import { notify } from "./top.js";
import { addressed, setAddress, watchAddress } from "../share/address.js";
import { tabHash } from "../share/link.js";
import { opening } from "../watch/opening.js";

const { state } = screen;

const FIRST_PLAY_MS = 800;
let server = null; // the page's own functions; null in saved pages

const within = (index, main) => Math.max(0, Math.min(main ? main.steps.length - 1 : 0, Math.trunc(index) || 0));

export function show(run, index) {
  Object.assign(state, { run, playing: false, time: null, sought: false, follow: !run || !run.finished, index: within(index, run && run.main),
    phase: 3, guess: state.guess && Boolean(run && !run.finished) });
  if (state.guess) state.phase = 1;
  drawChat(screen.parts, state);
  markSettings(run);
  redraw();
}

// A live update from the server, which makes a run grow
export function receive(value) {
  if (!value || !value.run) return;
  if (value.ticks) grow(value);
  if (value.error) notify("error", value.error);
  const run = state.turns.find((turn) => turn.id === value.run);
  if (run && value.gone) tellCut(run);
  if (run && (value.error || value.gone)) {
    run.stop();
    if (!run.main) fail(run);
    redraw();
  }
}

// A question without an answer: what made room for it is there again, and it stands in its box
export function fail(run) {
  state.turns.splice(state.turns.indexOf(run), 1, ...run.replaced);
  if (state.waiting === run) state.waiting = null;
  if (run.typed) state.from = run.from;
  giveBack(run);
  drawChat(screen.parts, state);
}

// Ends the answer that is being written, or waited for
export function endWriting() {
  for (const run of state.turns.filter((turn) => !turn.finished)) {
    run.stop();
    run.typed = "";
    if (!run.main) fail(run);
  }
}

// A new run, which takes the place of the turn `from` and of those after it
export function begin(id, { from, typed, form } = {}) {
  const run = new Run(id, "live");
  const at = state.turns.indexOf(from);
  Object.assign(run, { ticks: 0, newest: -1, heard: performance.now(), from, form, typed, replaced: at < 0 ? [] : state.turns.splice(at) });
  Object.assign(state, { from: null, putAway: null, waiting: run, lost: null });
  state.seen.add(id);
  state.turns.push(run);
  if (state.tab === "recordings") setTab("watch");
  if (screen.parts) drawChat(screen.parts, state);
  redraw();
  return run;
}

function grow(value) {
  let run = state.turns.find((turn) => turn.id === value.run);
  if (!run && state.seen.has(value.run)) return;
  run = run || begin(value.run);
  run.heard = performance.now();
  const numbers = Object.keys(value.ticks).map(Number).sort((a, b) => a - b);
  run.newest = Math.max(run.newest, ...numbers);
  for (const number of numbers) {
    if (number !== run.ticks) continue;
    JSON.parse(value.ticks[number]).forEach((event) => run.take(event));
    run.ticks = number + 1;
  }
  if (run.ticks <= run.newest) fetchMissed(run);
  if (run === state.waiting && run.main) {
    state.waiting = null;
    Object.assign(run, { replaced: [], from: null });
    show(run);
  } else if (run.finished && !run.main) fail(run);
  if (run.finished) baseline.remember(run);
  if (run === state.run) {
    if (state.follow) state.index = Math.max(0, run.main.steps.length - 1);
    if (run.finished) {
      state.follow = false;
      drawChat(screen.parts, state);
    }
  }
  redraw();
}

// A browser that was too busy to see every value asks for what it missed, now or later: steps are read in order
export async function fetchMissed(run) {
  if (run.fetching) return;
  run.fetching = true;
  const first = run.ticks;
  const missed = await server.missed({ run: run.id, first }).catch(() => []);
  run.fetching = false;
  if (!missed) receive({ run: run.id, gone: true });
  else if (missed.length) grow({ run: run.id, ticks: Object.fromEntries(missed.map((tick, i) => [first + i, tick])) });
}

// `step`: somebody chose it, and Back returns to the tab of before
export function setTab(tab, step) {
  const left = state.tab !== tab;
  state.tab = tab;
  document.body.dataset.jakiroTab = tab;
  if (screen.parts) {
    screen.parts.root.dataset.tab = tab;
    if (screen.parts.live) setAddress(tabHash(tab), step && left);
    screen.parts.placeScrubber(tab);
    if (tab === "recordings") screen.parts.recordings.draw();
    if (tab === "race") toTheStart();
    else fromTheStart();
  }
  redraw();
}

// The step a recording rests on: the longest accepted path beside others that were refused, by several proposers where there
// is a choice; not the end
export function highlight(main) {
  const steps = main.steps.slice(0, Math.max(1, main.steps.length - 1));
  const worth = (step) => deliveredPath(step).length
    + new Set(deliveredPath(step).map((i) => step.nodes[i].proposer)).size / 10 + (step.nodes.length - 1 > step.accepted_path.length ? 1 : 0);
  return steps.reduce((best, step, i) => (worth(step) > worth(steps[best]) ? i : best), 0);
}

export function showRecording(id, recording, { playNow, source = "recording", step, opening } = {}) {
  const run = runFromTraces(id, source, recording.traces, recording.title);
  run.text = recording.text;
  run.rest = run.main.steps.length ? highlight(run.main) : 0;
  const quiet = reducedMotion() || !playNow;
  if (opening) run.rest = opening.begin(run);
  show(run, step ?? (quiet ? run.rest : 0));
  if (!quiet) setTimeout(() => state.run === run && !state.playing && (opening ? moves.playTo(run.rest) : moves.play(true)), FIRST_PLAY_MS);
  return run;
}

export function mountView(element, props, watch, functions) {
  server = functions;
  const actions = { ...moves, redraw, redrawNow, setTab, showRecording, show, server };
  screen.parts = buildParts(element.querySelector(".jk-view"), state, actions);
  document.body.dataset.jakiroTab = state.tab;
  new ResizeObserver(() => redraw()).observe(screen.parts.root);
  new MutationObserver(() => redraw()).observe(document.body, { attributeFilter: ["class"] });
  if (watch) watch("value", () => receive(props.value));
  if (server) {
    screen.parts.live = true;
    restore(show);
    const link = addressed();
    screen.parts.recordings.first(link);
    watchAddress(link, server);
    watchConnection(() => state.turns.find((run) => !run.finished) || null);
  }
  redraw();
  return screen.parts;
}
