// Schedules drawing: when each part of the view is drawn, and what it is given. Parts wait for frames, take turns, and
// slow down by themselves where frames come late; they never slow the model.

import { counted, say } from "../base/dom.js";
import { given } from "../base/given.js";
import { drawMarkdown } from "../base/markdown.js";
import { sentWith } from "../chat/chat.js";
import { deliveredPath, depthOf } from "../data/history.js";
import { metrics } from "../data/metrics.js";
import { racing } from "./moves.js";
import { badgeOf, stepSentence, textOf } from "./parts.js";
import { drewSmallTrees } from "./settings.js";
import { screen } from "./state.js";
import { ladder } from "../tree/ladder.js";
import { treeList } from "../tree/list.js";
import { drawNumbers } from "../watch/facts.js";
import { drawBudget, drawRouter } from "../watch/panels.js";

const { state, lane, live, guessing, lastClock, stepsShown, raceTime } = screen;

// Milliseconds between drawings of a part while an answer is being written, mostly by a model on the same cores: tree and
// plot cost the most, Plotly more than the page's own drawings
const EVERY = { tree: 1000, plot: 3000, text: 80, bar: 250, numbers: 250 };
const EVERY_PLAYED = { tree: 80, plot: 160, bar: 80 };
// A line that has just begun changes the most: drawn after one second, two more, then three
const YOUNG_PLOT_MS = 1000;
const IN_TIME_MS = 30;
const SLOWEST = 8;
const SOON_MS = 20;
// A frame costs more than what is drawn in it, so numbers and tree wait this long for a frame that draws text
const TOGETHER_MS = 300;

// In the order in which they are drawn: what measures the page comes first, before others have changed it
const pending = { tree: false, plot: false, text: false, bar: false, numbers: false };
const last = { tree: 0, plot: 0, text: 0, bar: 0, numbers: 0 };
const cost = { tree: 0, plot: 0, text: 0, bar: 0, numbers: 0 };
// A new one is drawn at once, whole, and so are its first steps
let drawnRun = null;
// When the pending frame was asked for
let asked = null;
// Wakes drawing when the first part's turn comes, so that no frame is asked for in vain
let alarm = null;
// How long frames keep drawing waiting, in milliseconds, on average
let delay = 0;

export function redraw(...names) {
  (names.length ? names : Object.keys(pending)).forEach((name) => (pending[name] = true));
  if (asked !== null) return;
  const now = performance.now();
  const soonest = Math.min(...Object.keys(pending).filter((name) => pending[name]).map(turn)) - now;
  clearTimeout(alarm);
  if (soonest > SOON_MS) alarm = setTimeout(askForFrame, soonest - SOON_MS / 2);
  else askForFrame();
}

// A part that a person has just changed does not wait for its turn
export function redrawNow(name) {
  last[name] = -Infinity;
  redraw(name);
}

// When a part asks for a frame; in a frame that another part asked for it is drawn as soon as its wait is over
function turn(name) {
  const pause = wait(name);
  const due = last[name] + pause;
  return name === "text" || !pause ? due : Math.max(due, last.text + TOGETHER_MS);
}

function askForFrame() {
  asked = performance.now();
  requestAnimationFrame(frame);
}

// A part waits for its turn while the answer is being written, and longer where drawing it is slow or frames are late
function wait(name) {
  const unhurried = (live() && state.follow) || state.playing;
  if (!unhurried || state.run !== drawnRun) return 0;
  const slower = Math.min(SLOWEST, Math.max(1, delay / IN_TIME_MS));
  return Math.max(every(name) * slower, 4 * cost[name]);
}

function every(name) {
  if (state.playing && name in EVERY_PLAYED) return EVERY_PLAYED[name];
  return name === "plot" ? Math.min(EVERY.plot, YOUNG_PLOT_MS * (1 + lastClock(state.run))) : EVERY[name];
}

function frame() {
  const now = performance.now();
  delay += 0.2 * (Math.min(now - asked, SLOWEST * IN_TIME_MS) - delay);
  asked = null;
  if (!screen.parts) return;
  const due = Object.keys(pending).filter((name) => pending[name] && now - last[name] >= wait(name));
  for (const name of due) {
    pending[name] = false;
    last[name] = now;
    cost[name] = timed(() => DRAW[name](screen.parts));
  }
  if (lane()?.steps.length) drawnRun = state.run;
  if (due.includes("text") && state.tab === "watch") cost.text += timed(() => scrollAnswer(screen.parts));
  const waiting = Object.keys(pending).filter((name) => pending[name]);
  if (waiting.length) redraw(...waiting);
}

function timed(draw) {
  const start = performance.now();
  draw();
  return performance.now() - start;
}

const DRAW = {
  text(parts) {
    const main = lane();
    const steps = stepsShown();
    Object.assign(parts.root.dataset, { tab: state.tab, run: state.run ? state.run.id : "",
      finished: String(Boolean(state.run && state.run.finished)), drawn: Number(parts.root.dataset.drawn || 0) + 1 });
    document.body.dataset.answering = state.waiting || live() ? "1" : "";
    parts.waiting.forEach((box) => box.draw(state.waiting));
    parts.keysHint.textContent = say(keysNow()) + (parts.live ? ` · ${say("key_ask")}` : "");
    if (state.tab === "watch") drawAnswer(parts, main, steps);
    parts.race.draw(state, raceTime());
  },
  plot: drawPlot,
  bar(parts) {
    parts.scrubber.draw(lane(), { index: state.index, live: live(), follow: state.follow, playing: state.playing });
  },
  numbers(parts) {
    const limited = state.time !== null || guessing() ? stepsShown() : undefined;
    parts.headline.draw(state.run, limited);
    if (opened(parts.numbers)) drawNumbers(parts.numbers, state.run, limited);
    if (state.tab === "race") parts.race.drawResult(state.run, state.time === null ? Infinity : state.time);
    speak(parts);
  },
  tree: drawTree,
};

// What the keys do now
function keysNow() {
  if (state.armed) return "keys_ask";
  if (racing()) return "keys_race";
  if (state.guess) return guessing() ? "keys_reveal" : "keys_next";
  return "keys_hint";
}

function drawAnswer(parts, main, steps) {
  parts.empty.hidden = Boolean(main) || Boolean(state.waiting);
  parts.answerText.hidden = !main || state.markdown;
  parts.markdown.hidden = !main || !state.markdown;
  parts.question.textContent = main ? state.run.question : "";
  parts.sentWith.textContent = main ? badgeOf(state.run) || sentWith(state.run) : "";
  parts.legend.draw(main, main ? main.steps.slice(0, steps) : []);
  if (!main) return;
  const count = steps ? main.countAfter(steps - 1) : 1;
  const everything = allShown(main, steps);
  const growing = !everything || !main.endReason;
  const folded = parts.answer.foldedBefore(count);
  if (state.markdown) {
    drawMarkdown(parts.markdown, textOf(main, count, folded), folded && parts.answer.unfoldButton(folded));
  } else parts.answer.draw(main, count, { live: growing, selected: state.index, tail: everything ? tail(main) : "" });
  parts.turns.hidden = !everything;
}

const allShown = (main, steps) => steps === main.steps.length;

// After all drawing, since it makes the browser lay out what has changed
let broughtTo = null;
function scrollAnswer(parts) {
  const main = lane();
  if (!main) return;
  const box = parts.answerScroll;
  const following = (live() && state.follow) || state.playing;
  const wanted = `${state.run.id}/${state.index}`;
  if (!following && wanted === broughtTo) return;
  if (following || (allShown(main, stepsShown()) && state.index === main.steps.length - 1)) box.scrollTop = box.scrollHeight;
  else {
    const chosen = parts.answerText.querySelector(".selected");
    if (!chosen?.getClientRects().length) return;
    const [around, spot] = [box, chosen].map((one) => one.getBoundingClientRect());
    if (spot.top < around.top + 8 || spot.bottom > around.bottom - 8) box.scrollTop += spot.top - around.top - around.height / 2;
  }
  if (!following) broughtTo = wanted;
}

function tail(main) {
  const words = `ended_${main.endReason}`;
  return Object.hasOwn(given.words, words) ? say(words, { tokens: counted("token", main.tokens.length) }) : "";
}

function drawPlot(parts) {
  const main = lane();
  const steps = stepsShown();
  const plot = { watch: parts.plot, race: parts.racePlot }[state.tab];
  const growing = live() && state.follow;
  if (!plot || (growing && !plot.seen)) return;
  parts.root.querySelectorAll("[data-plot-mode]").forEach((button) => button.setAttribute("aria-pressed",
    String(button.dataset.plotMode === state.plotMode)));
  const marked = main && main.steps.length && !growing;
  plot.draw(state.run, {
    growing, mode: state.plotMode, bracket: state.tab === "race",
    time: state.time !== null ? state.time : guessing() && main ? main.seconds[steps - 1] || 0 : null,
    playhead: marked ? state.time ?? main.seconds[state.index] : null,
  });
}

const opened = (host) => host.closest("details").open;
// Pixels, below which the kept path stands in rows
const NARROW = 600;

function drawTree(parts) {
  const main = lane();
  const { index, phase } = state;
  const ready = Boolean(main && main.steps[index]);
  const narrow = parts.root.clientWidth < NARROW;
  parts.treeEmpty.hidden = ready || !main?.endReason;
  parts.treeHost.hidden = !ready || state.list || narrow;
  parts.listHost.hidden = !ready || !state.list;
  parts.ladderHost.hidden = !ready || state.list || !narrow;
  parts.wholeTree.hidden = parts.ladderHost.hidden;
  parts.phases.forEach((choice, i) => {
    choice.setAttribute("aria-checked", String(phase === i + 1));
    choice.tabIndex = phase === i + 1 ? 0 : -1;
  });
  parts.smallTrees.hidden = !drewSmallTrees(state.run);
  parts.guess.checked = state.guess;
  if (!ready || state.tab !== "watch") {
    parts.treeLine.textContent = "";
    return;
  }
  const step = main.steps[index];
  parts.treeLine.textContent = stepWords(step, phase);
  parts.card.about(main, index, phase);
  if (state.list) parts.listHost.replaceChildren(treeList(main, index, phase));
  else if (narrow) parts.ladderHost.replaceChildren(ladder(main, index, phase, parts.card));
  else {
    parts.tree.draw({ lane: main, index, phase, choices: state.choices, showAll: state.showAll, spaces: state.spaces,
      sentence: stepSentence(main, index, phase) });
  }
  if (opened(parts.mask.host)) parts.mask.draw(main, index);
  if (opened(parts.router)) drawRouter(parts.router, main, index);
  if (opened(parts.budget)) drawBudget(parts.budget, main, index);
}

// The step in a few words; nothing of the verdict in phase 1
function stepWords(step, phase) {
  if (step.nodes.length < 2) return say("no_draft");
  const kept = deliveredPath(step).length;
  const values = { candidates: counted("candidate", step.nodes.length - 1), tokens: counted("token", depthOf(step)),
    right: kept ? counted("right", kept) : say("none_right"), cut: step.accepted_path.length + 1 - step.committed_ids.length };
  return say(phase === 1 ? "tree_line_hidden" : values.cut ? "tree_line_cut" : "tree_line", values);
}

// One polite voice: at the start, every ten seconds, and at the end
let spoken = { run: null, at: 0, end: false };
function speak(parts) {
  const main = lane();
  if (!main || state.run.source !== "live") return;
  const now = performance.now();
  if (spoken.run !== state.run.id) {
    spoken = { run: state.run.id, at: now, end: false };
    parts.voice.textContent = say("spoken_start");
  } else if (!spoken.end && (state.run.finished || now - spoken.at > 10000)) {
    const value = metrics.speedup(main, state.run.plain);
    const speedup = value === null ? "" : say("spoken_speedup", { speedup: value.toFixed(1) });
    const values = { tokens: main.tokens.length, speedup };
    parts.voice.textContent = say(state.run.finished ? "spoken_end" : "spoken_progress", values);
    spoken = { run: state.run.id, at: now, end: state.run.finished };
  }
}
