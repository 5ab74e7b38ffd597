// The page's state (`state`), the moves that change it, and one draw per frame. A draw gets a moment (run, step, phase, number
// of written tokens), and every part of the page draws that moment.

import { memory, reducedMotion, say } from "../base/dom.js";
import { toHex } from "../base/pieces.js";
import { notify } from "../base/server.js";
import { giveBack } from "../chat/box.js";
import { saveChat, saveGrowing, saveTurn } from "../chat/keep.js";
import { deleteTurns } from "../chat/store.js";
import { Chat, addTurn, chatOf, choose, removeTurn, turnsBelow } from "../chat/tree.js";
import { Run, deliveredPath, runFromTraces } from "../data/history.js";

export const PACES = ["slow", "normal", "real"];
// Milliseconds of each phase while steps are played; a phase with a longer animation lasts until that has ended
const TEMPO = { slow: [900, 700, 1100], normal: [300, 250, 350] };
// While an answer is written or played: the least time between two draws, and how much longer than a draw it is, since the
// model may compute on the same cores
const EVERY_MS = 60;
const SPARE = 3;
const RECENT = 3; // draws; one of them may be held up by the model's threads
const IN_TIME_MS = 30;
const FIRST_PLAY_MS = 800;
const TOUR_STEPS = 3; // of the first finished answer, played once in a visit
const TOUR = "jakiro-tour";
const LONGEST_MS = 5000; // of an animation that a phase waits for; a blinking cursor never ends
const MOST_UNKNOWN = 10; // how often the server may not know a question that was sent

// A random id, which the server returns with the answer
export const newId = () => toHex(crypto.getRandomValues(new Uint8Array(16)));

export const state = {
  tab: "watch",
  run: null,
  waiting: null,
  index: 0,
  follow: true,
  phase: 3,
  guess: false,
  playing: false,
  replay: false,
  tour: null, // steps that are still to be played after this one; null plays all
  time: null,
  sought: false,
  pace: "slow",
  showAll: false,
  list: false,
  spaces: false,
  reading: false,
  formatted: true,
  plotMode: "tokens",
  raceSpeed: 1,
  chat: new Chat(newId()),
  open: new Map(), // answers that the server computes or will compute, by id
  from: null, // the turn that the question in the box is another version of
  putAway: null, // the chat before a new one
  armed: false,
  lost: null,
  starting: false,
  seen: new Set(),
  linked: null,
  // The turns of the chat that are on screen
  get turns() {
    return this.chat.path;
  },
};

// The panes, once they are built; the server's functions and the form's events, null in saved pages
export const screen = { parts: null, server: null, form: null, state };

export const lane = () => state.run && state.run.main;
export const live = () => Boolean(state.run && !state.run.finished);
export const guessing = () => (state.guess || state.replay) && state.phase < 3;
const lastClock = (run) => Math.max(...Object.values(run.lanes).map((one) => one.clock));
const lastStep = (main) => Math.max(0, main.steps.length - 1);

// Number of steps of the main lane that may be shown now: all, those up to the playing time, or up to the replayed step
function stepsShown(main) {
  if (!main) return 0;
  if (state.guess || state.replay)
    return Math.min(main.steps.length, state.index + (state.phase < 3 ? 0 : 1));
  return state.time === null ? main.steps.length : main.stepsAt(state.time);
}

// Up to which second of their own clocks lanes are shown; Infinity for all of them. While they run that is the clock of the lane
// that the tree shows, and in the race that of the slowest one
function secondsShown(main, steps) {
  if (!main) return 0;
  if (state.time !== null) return state.time;
  if (state.guess || state.replay) return main.seconds[steps - 1] || 0;
  const running = Object.values(state.run.lanes).filter((one) => !one.endReason);
  if (!live() || !running.length) return Infinity;
  return state.tab === "watch" && !main.endReason
    ? main.clock
    : Math.min(...running.map((one) => one.clock));
}

// The data of one draw
export function moment() {
  const main = lane();
  const steps = stepsShown(main);
  return {
    ...state,
    main,
    steps,
    live: live(),
    following: live() && state.follow,
    hidden: guessing(),
    step: main?.steps[state.index] || null,
    count: main ? main.countAfter(steps - 1) : 0,
    // A replay keeps the later words in grey; the recording that plays first, and the quiz, hide them
    greys: state.replay && !state.guess && state.run.source !== "recording",
    whole: Boolean(main) && steps === main.steps.length,
    seconds: secondsShown(main, steps),
  };
}

// The race time on screen: a chosen step has its own
export function raceTime({ main, seconds, sought, index, live: running, follow }) {
  const chosen =
    main &&
    main.steps.length &&
    seconds === Infinity &&
    (running ? !follow : sought && index < main.steps.length - 1);
  return chosen ? main.seconds[index] : seconds;
}

let draw = () => {};
let asked = null; // time at which the next frame was requested
let alarm = 0; // wakes the next draw while an answer grows
let last = 0;
let costs = []; // milliseconds of the last draws, or delays of their frames; the minimum is the cost of a draw
let drawnRun = null; // a new one is drawn at once

export const drawWith = (drawing) => (draw = drawing);

function frame() {
  const late = performance.now() - asked - IN_TIME_MS;
  asked = null;
  if (!screen.parts) return;
  last = performance.now();
  draw(moment());
  costs = [Math.max(performance.now() - last, late), ...costs].slice(0, RECENT);
  if (lane()?.steps.length) drawnRun = state.run;
}

export function redraw() {
  if (asked !== null) return;
  clearTimeout(alarm);
  const unhurried = ((live() && state.follow) || state.playing) && state.run === drawnRun;
  const wait = unhurried
    ? last + Math.max(EVERY_MS, SPARE * Math.min(...costs)) - performance.now()
    : 0;
  const ask = () => {
    asked = performance.now();
    requestAnimationFrame(frame);
  };
  if (wait > 0) alarm = setTimeout(ask, wait);
  else ask();
}

// A change by the visitor is drawn without delay
export function redrawNow() {
  last = -Infinity;
  redraw();
}

export function change(changes) {
  Object.assign(state, changes);
  redrawNow();
}

// Larger type for a hall, remembered for the visit
export const inProjector = () => document.documentElement.classList.contains("projector");

export function projector(on) {
  document.documentElement.classList.toggle("projector", on);
  memory.set("jakiro-projector", on ? "1" : "");
  document
    .querySelectorAll('[data-action="projector"]')
    .forEach((button) => button.setAttribute("aria-pressed", String(on)));
  redrawNow();
}

// Runs: the run on screen, and updates that extend it

// The most instructive steps, best first: words that were kept next to others that were rejected, the longest path of these, by
// several proposers if there is a choice; never the end
function highlights(main, count) {
  const isWord = (token) => !token.special && /\p{L}/u.test(new TextDecoder().decode(token.bytes));
  const worth = (step) => {
    const kept = deliveredPath(step);
    const tokens = main.tokens.slice(main.countAfter(step.index - 1), main.countAfter(step.index));
    const telling =
      kept.length && step.nodes.length - 1 > step.accepted_path.length && tokens.every(isWord);
    return (
      (telling ? 100 : 0) + kept.length + new Set(kept.map((i) => step.nodes[i].proposer)).size / 10
    );
  };
  return main.steps
    .slice(0, Math.max(1, main.steps.length - 1))
    .map((step, i) => [worth(step), i])
    .sort(([a, i], [b, j]) => b - a || i - j)
    .slice(0, count)
    .map(([, i]) => i);
}

const highlight = (main) => highlights(main, 1)[0] ?? 0;

// Without an index, the step that tells most
export function show(run, index) {
  const guess = state.guess && Boolean(run && !run.finished);
  const rest = run && run.main && run.finished ? highlight(run.main) : 0;
  change({
    run,
    playing: false,
    replay: false,
    tour: null,
    time: null,
    sought: false,
    follow: !run || !run.finished,
    guess,
    phase: guess ? 1 : 3,
    index:
      index === undefined || !run?.main
        ? rest
        : Math.max(0, Math.min(lastStep(run.main), Math.trunc(index))),
  });
}

// A live update from the server, which makes a run grow
export function receive(value) {
  if (!value || !value.run) return;
  if (value.ticks) grow(value);
  if (value.error) {
    const tooLong = value.error.endsWith(say("chat_counts"));
    notify("error", value.error, tooLong && pages.leaveOut, "leave_out");
  }
  const run = state.open.get(value.run);
  if (!run || !(value.error || value.gone)) return;
  if (value.gone) {
    const n = run.main?.tokens.length ?? run.stored?.numTokens ?? 0;
    notify("error", say("visit_cut", { n }));
    giveBack(run);
  }
  end(run);
}

// Ends an answer. Without a token it is no turn of the chat, and its question returns to the box
function end(run) {
  run.stop();
  state.open.delete(run.id);
  if (state.waiting === run) state.waiting = null;
  if (run.parent) saveTurn(run);
  else {
    if (run.typed) state.from = run.from;
    giveBack(run);
  }
  redraw();
}

// Ends an answer whose connection broke; the sentence has the reason
export function lose(run, sentence) {
  const n = run.main?.tokens.length ?? 0;
  end(run);
  giveBack(run);
  state.lost = run;
  notify("error", say(sentence, { n }));
}

// A question is on its way to the server; its answer becomes a turn of the chat with its first token.
// parent: the turn it follows, or the chat; from: the turn that it is another version of
export function begin(id, { parent = state.chat.leaf, from = null, typed = "", form }) {
  const { skipped } = state.chat;
  const run = Object.assign(new Run(id, "live"), { form, from, typed, skipped, under: parent });
  wait(run);
  state.seen.add(id);
  if (state.tab === "recordings") setTab("watch");
  change({ from: null, putAway: null, waiting: run, lost: null, playing: false });
  return run;
}

// Updates of this answer are received from now on
export function wait(run) {
  Object.assign(run, { newest: -1, unknown: 0, heard: performance.now() });
  run.ticks ??= 0;
  state.open.set(run.id, run);
}

// Shows another version of a turn, and the turns that follow it; `remove` deletes the one that is left
export function showBranch(run, to, remove) {
  if (remove) {
    removeTurn(run);
    deleteTurns([run, ...turnsBelow(run)].map(({ id }) => id));
  }
  if (to.parent) {
    choose(to);
    saveChat(chatOf(to));
  }
  onTurn.show(to);
}

// Shows a turn, after loading its steps if necessary; set by chat/chats.js
export const onTurn = { show };

function grow(value) {
  let run = state.open.get(value.run);
  if (!run && state.seen.has(value.run)) return;
  run = run || begin(value.run, {});
  run.heard = performance.now();
  run.newest = Math.max(run.newest, ...Object.keys(value.ticks));
  // The server sends all of an answer that was restored from the database
  if (!run.ticks && value.ticks[0]) run.lanes = Object.create(null);
  for (; value.ticks[run.ticks]; run.ticks += 1)
    JSON.parse(value.ticks[run.ticks]).forEach((event) => run.take(event));
  if (run.ticks <= run.newest) fetchMissed(run);
  if (run === state.waiting && run.main) {
    state.waiting = null;
    if (!run.parent) addTurn(run.under, run);
    if (chatOf(run) === state.chat) show(run);
  }
  if (run.parent && !run.finished) saveGrowing(run);
  if (run.finished) end(run);
  if (run === state.run && state.follow) {
    state.index = lastStep(run.main);
    // An answer that has ended rests where there is most to see
    if (run.finished) {
      change({ follow: false, index: highlight(run.main) });
      playTour(run);
    }
  }
  redraw();
}

// Fetches updates that a busy browser did not receive: steps are read in order
export async function fetchMissed(run) {
  if (run.fetching) return;
  run.fetching = true;
  const { ticks: first, newest } = run;
  const missed = await screen.server.missed({ run: run.id, first }).catch(() => []);
  run.fetching = false;
  if (missed?.length)
    grow({ run: run.id, ticks: Object.fromEntries(missed.map((tick, i) => [first + i, tick])) });
  if (missed || run.newest > newest) return; // a later update shows that the server has it
  // Before its first token the question may be on its way: browsers hold it back while all their connections are in use
  run.unknown += 1;
  if (newest >= 0 || run.unknown > MOST_UNKNOWN) receive({ run: run.id, gone: true });
}

export function showRecording(id, recording, { playNow, source = "recording", step } = {}) {
  const run = runFromTraces(id, source, recording.traces, recording.title);
  const { branches = [], shown } = recording;
  run.branches = branches.length
    ? branches.map((traces, i) =>
        i === shown ? run : runFromTraces(`${id}-${i}`, source, traces, recording.title),
      )
    : [run];
  run.branches.forEach((one) =>
    Object.assign(one, { text: recording.text, branches: run.branches }),
  );
  const quiet = reducedMotion() || !playNow;
  show(run, step ?? (quiet ? undefined : 0));
  // A race starts only with its button
  const plays = () =>
    state.run === run && state.tab !== "race" && !state.playing && !state.sought && play(true);
  if (!quiet) setTimeout(plays, FIRST_PLAY_MS);
  return run;
}

// The first finished answer of a visit plays its most instructive steps slowly, unless the visitor moves first
function playTour(run) {
  if (memory.get(TOUR) || reducedMotion() || state.tab !== "watch" || !run.main.steps.length)
    return;
  memory.set(TOUR, "1");
  setTimeout(() => {
    if (state.run !== run || state.sought || state.playing || state.guess || state.open.size)
      return;
    const [index, ...tour] = highlights(run.main, TOUR_STEPS).sort((a, b) => a - b);
    change({ index, tour, phase: 1, replay: true, playing: true });
    playSteps();
  }, FIRST_PLAY_MS);
}

// Actions of keys and notices in parts of the page that are built later
export const pages = { back: null, next: null, ask: null, leaveOut: null };

// Tabs; each listener gets the tab, and whether the visitor chose it, so that Back returns to the previous one
export const onTab = [];

export function setTab(tab, step) {
  const chosen = Boolean(step && state.tab !== tab);
  state.tab = tab;
  document.body.dataset.jakiroTab = tab;
  const { run } = state;
  const waits = run?.source === "recording" && !run.played && run.plain; // in the race, at its start
  if (tab === "race" && waits)
    Object.assign(state, { playing: false, replay: false, phase: 3, time: 0, index: 0 });
  else if (tab !== "race" && state.time === 0 && !state.playing)
    Object.assign(state, { time: null, index: highlight(lane()) });
  onTab.forEach((told) => told(tab, chosen));
  redrawNow();
}

// Moves

function seek(index) {
  const main = lane();
  if (!main || !main.steps.length || Number.isNaN(index)) return;
  const at = Math.max(0, Math.min(lastStep(main), index));
  change({
    index: at,
    follow: live() && !state.guess && at === lastStep(main),
    playing: false,
    replay: false,
    tour: null,
    time: null,
    sought: true,
    phase: state.guess ? 1 : state.replay ? 3 : state.phase,
  });
}

function follow() {
  Object.assign(state, { guess: false, phase: 3 });
  seek(Infinity);
}

const setPhase = (phase) => change({ phase, playing: false });

const guessFirst = (on) =>
  change({
    guess: on,
    phase: on ? 1 : 3,
    follow: !on && live() && state.follow,
    playing: false,
    replay: false,
    time: null,
  });

// In the race there is nothing to go through: it runs
export const racing = () => state.tab === "race" && Boolean(state.run) && !live();

// Space: like a clicker if a question is armed or in the quiz, else play and pause
const advance = () => (state.armed || state.guess ? ahead() : play());

// A clicker's two keys: forward (the armed question, the race, the next phase, the next step), and back
function ahead() {
  if (state.armed) {
    state.armed = false;
    pages.ask();
  } else if (racing()) play(state.time === null);
  else if (guessing()) setPhase(state.guess ? 3 : state.phase + 1);
  else seek(state.index + 1);
}

function back() {
  state.armed = false;
  if (state.guess && state.phase === 3) setPhase(1);
  else seek(state.index - 1);
}

// Plays a finished answer: its steps, phase by phase, or its seconds; pauses if it plays; for a growing answer, holds it or
// returns to its end
function play(fromStart) {
  const { run } = state;
  const main = lane();
  if (!run || !main || !main.steps.length) return;
  if (live()) {
    if (state.follow) seek(state.index - 1);
    else follow();
  } else if (state.playing) change({ playing: false });
  else if (racing() || state.pace === "real") {
    const atEnd = state.time === null || state.time >= lastClock(run);
    const again = fromStart || (atEnd && (state.tab === "race" || state.index >= lastStep(main)));
    run.played = true;
    change({
      time: again ? 0 : (state.time ?? main.seconds[state.index]),
      guess: false,
      replay: false,
      phase: 3,
      playing: true,
      sought: false,
    });
    playSeconds(performance.now());
  } else {
    const again = fromStart || !(state.replay || state.sought) || state.index >= lastStep(main);
    const on = state.replay && !fromStart;
    change({
      index: again ? 0 : state.index,
      phase: on ? state.phase : 1,
      time: null,
      guess: false,
      replay: true,
      tour: on ? state.tour : null,
      playing: true,
      sought: false,
    });
    playSteps();
  }
}

// Milliseconds of the three phases now
export const tempo = () => TEMPO[state.tour ? "slow" : state.pace];

// Returns `goOn`, which does nothing after another move, another play or another answer
let playNumber = 0;
function unlessMoved(goOn) {
  const number = (playNumber += 1);
  const main = lane();
  return (now) => state.playing && number === playNumber && lane() === main && goOn(now);
}

function playSteps() {
  const main = lane();
  const goOn = unlessMoved(() => {
    const next = state.tour ? state.tour[0] : state.index + 1;
    if (state.phase < 3) state.phase += 1;
    else if (next <= lastStep(main))
      Object.assign(state, { index: next, phase: 1, tour: state.tour?.slice(1) ?? null });
    else return rest(main);
    hold();
    redrawNow();
  });
  const hold = () => {
    if (main.steps[state.index].nodes.length < 2) state.phase = 3; // nothing to guess
    setTimeout(() => whenStill().then(goOn), tempo()[state.phase - 1]);
  };
  hold();
}

// When the marks and words that move now have arrived
function whenStill() {
  const moving = screen.parts.root
    .getAnimations({ subtree: true })
    .filter(
      (one) => one.playState === "running" && one.effect.getComputedTiming().endTime < LONGEST_MS,
    );
  return Promise.allSettled(moving.map((one) => one.finished));
}

const rest = (main) =>
  change({ playing: false, replay: false, tour: null, time: null, index: highlight(main) });

function playSeconds(before) {
  const main = lane();
  const goOn = unlessMoved((now) => {
    const speed = state.tab === "race" ? state.raceSpeed : 1;
    state.time += (speed * Math.max(0, now - before)) / 1000;
    before = now;
    state.index = Math.max(0, main.stepsAt(state.time) - 1);
    if (state.time >= lastClock(state.run)) return rest(main);
    redraw();
    requestAnimationFrame(goOn);
  });
  requestAnimationFrame(goOn);
}

function setPace(pace) {
  const { playing } = state;
  change({
    pace,
    playing: false,
    tour: null,
    ...(state.time !== null && pace !== "real" ? { time: null, sought: true } : {}),
  });
  if (playing) play();
}

export const moves = {
  seek,
  follow,
  play,
  setPace,
  setPhase,
  guessFirst,
  advance,
  ahead,
  back,
  state,
};
