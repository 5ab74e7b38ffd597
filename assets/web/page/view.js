// The view: one draw updates every pane; and the start of the page.

import { say, setText } from "../base/dom.js";
import { drawChat, sentWith } from "../chat/chat.js";
import { restore } from "../chat/chats.js";
import { storeOnDisk } from "../chat/store.js";
import { metrics } from "../data/metrics.js";
import { chip } from "./chip.js";
import { watchConnection } from "./connection.js";
import {
  drawWith,
  onTab,
  raceTime,
  racing,
  receive,
  redraw,
  screen,
  showRecording,
  state,
} from "./machine.js";
import { buildParts } from "./parts.js";
import { mountReplayTop } from "./top.js";
import { readTraceFile } from "../data/trace_file.js";
import { addressed, watchAddress } from "../share/address.js";
import { ladder, treeList } from "../tree/rows.js";
import { drawNumbers } from "../watch/facts.js";
import { drawSum } from "../watch/figure.js";
import { fly, land } from "../watch/flight.js";
import { drawBudget, drawMask, drawRouter } from "../watch/panels.js";
import { setFormWith } from "./form.js";
import { badgeOf, endWords, stepSentence, stepSum } from "../watch/words.js";

const NARROW = 600; // pixels; below it the accepted path is drawn in rows
const SPEAK_MS = 10000;

let before = {}; // the moment that was drawn last

const opened = (host) =>
  host.closest("details").open && screen.parts.panels.matches(":popover-open");

function draw(now) {
  const { parts } = screen;
  const { root } = parts;
  const { run } = now;
  // Read before anything is written
  const [above, below] = [
    root.getBoundingClientRect().top + scrollY,
    document.querySelector("#question-row")?.offsetHeight ?? 0,
  ];
  document.body.style.setProperty("--above", `${Math.ceil(above)}px`);
  document.body.style.setProperty("--composer", `${below}px`);
  Object.assign(root.dataset, {
    run: run ? run.id : "",
    finished: String(Boolean(run?.finished)),
    starting: now.starting && !run ? "1" : "",
    waiting: now.waiting ? "1" : "",
    drawn: Number(root.dataset.drawn || 0) + 1,
  });
  document.body.dataset.answering = now.open.size ? "1" : "";
  root.classList.toggle("spaces", now.spaces);
  root.classList.toggle("reading", now.reading);
  parts.waiting.forEach((box) => box.draw(now.waiting));
  parts.keysHint.textContent = say(keysNow(now)) + (screen.server ? ` · ${say("key_ask")}` : "");
  parts.headline.draw(run, now.whole ? undefined : now.steps);
  parts.playBar.draw(now);
  drawChat(parts, now);
  if (now.tab === "watch") {
    drawTree(parts, now);
    drawAnswer(parts, now);
    drawPlot(parts.plot, now);
    scrollAnswer(parts, now);
  } else if (now.tab === "race") {
    parts.race.draw(now, raceTime(now));
    parts.race.drawResult(run, now.time ?? Infinity);
    drawPlot(parts.racePlot, now);
  }
  if (opened(parts.numbers)) drawNumbers(parts.numbers, run, now.whole ? undefined : now.steps);
  speak(parts, now);
  land(parts);
  // The accepted words of a played step fly into the answer
  if (
    now.tab === "watch" &&
    now.replay &&
    now.phase === 3 &&
    before.phase === 2 &&
    before.index === now.index
  )
    fly(parts, now);
  before = now;
}

// The hint about keys
const keysNow = (now) =>
  now.armed
    ? "keys_ask"
    : racing()
      ? "keys_race"
      : !now.guess
        ? "keys_hint"
        : now.hidden
          ? "keys_reveal"
          : "keys_next";

function drawAnswer(parts, now) {
  const { run, main, steps, count, whole, index, waiting, formatted, greys } = now;
  parts.empty.hidden = Boolean(main) || Boolean(waiting) || now.turns.length > 0;
  parts.answerText.hidden = !main;
  parts.question.textContent = main ? run.question : "";
  parts.sentWith.textContent = main ? badgeOf(run) || sentWith(run) : "";
  parts.branches.draw(run);
  parts.legend.draw(main, main ? main.steps.slice(0, steps) : []);
  if (!main) return;
  const complete = whole || greys;
  parts.answer.draw(main, greys ? main.tokens.length : count, {
    live: !complete || !main.endReason,
    selected: index,
    tail: complete ? endWords(main) : "",
    formatted,
    reached: count,
  });
  parts.turns.hidden = !complete;
}

// After all drawing, because it forces a layout. Growing text follows its end while that is in view; at the end nothing scrolls.
// A step that the visitor chose is scrolled into view
let broughtTo = null;
function scrollAnswer(parts, { run, main, following, playing, replay, index, sought, waiting }) {
  const { answerScroll: box, answerText, follower } = parts;
  if (following || waiting) {
    follower.follow();
    broughtTo = null;
    return;
  }
  const target = `${run?.id}/${index}`;
  if (!main || broughtTo === target || !(sought || playing || replay)) return;
  broughtTo = target;
  const chosen = [...answerText.querySelectorAll(".selected")].find(
    (token) => token.getClientRects().length, // signs have none
  );
  if (!chosen) return;
  const [around, spot] = [box, chosen].map((one) => one.getBoundingClientRect());
  if (spot.top < around.top + 8 || spot.bottom > around.bottom - 8)
    box.scrollTop += spot.top - around.top - around.height / 2;
}

function drawPlot(
  plot,
  { run, main, steps, whole, following, seconds, index, time, plotMode, tab, sought },
) {
  screen.parts.root
    .querySelectorAll("[data-plot-mode]")
    .forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.plotMode === plotMode)),
    );
  if (following && !plot.seen) return;
  const marked = main?.steps.length && whole && !following && (tab === "watch" || sought);
  plot.draw(run, {
    growing: following,
    mode: plotMode,
    race: tab === "race",
    time: seconds === Infinity ? null : seconds,
    playhead:
      time ?? (marked ? main.seconds[index] : steps && !following ? main.seconds[steps - 1] : null),
  });
}

function drawTree(parts, { run, main, step, index, phase, list, guess, ...look }) {
  const narrow = parts.root.clientWidth < NARROW;
  parts.treeEmpty.hidden = Boolean(step) || !main?.endReason;
  parts.treeHost.hidden = !step || list || narrow;
  parts.listHost.hidden = !step || !list;
  parts.ladderHost.hidden = !step || list || !narrow;
  parts.phases.mark(phase);
  parts.treeSize.draw({ run, main, step });
  parts.guess.checked = guess;
  drawSum(parts.treeLine, step ? stepSum(step, phase) : "");
  drawKey(parts.key, step && main, phase);
  parts.wholeTree.hidden = true;
  if (!step) return;
  parts.card.about(main, index, phase);
  if (list) parts.listHost.replaceChildren(treeList(main, index, phase));
  else if (narrow) parts.ladderHost.replaceChildren(ladder(main, index, phase, parts.card));
  else {
    parts.tree.draw({
      lane: main,
      index,
      phase,
      showAll: look.showAll,
      spaces: look.spaces,
      played: look.replay,
      sentence: stepSentence(main, index, phase),
    });
  }
  parts.wholeTree.hidden = list || !(narrow || parts.tree.plan.pills.length);
  if (opened(parts.mask)) drawMask(parts.mask, main, index);
  if (opened(parts.router)) drawRouter(parts.router, main, index);
  if (opened(parts.budget)) drawBudget(parts.budget, main, index);
}

// The legend of the tree's signs in a phase
function drawKey(host, lane, phase) {
  host.hidden = !lane || lane.isPlain;
  if (!host.hidden) setText(host, say(`signs_${phase}`));
}

// One polite voice: at the start, every ten seconds, and at the end
let spoken = { run: null, at: 0, end: false };
function speak(parts, { run, main }) {
  if (!main || run.source !== "live") return;
  const begun = spoken.run === run.id;
  if (
    begun &&
    run.finished === spoken.end &&
    (spoken.end || performance.now() - spoken.at <= SPEAK_MS)
  )
    return;
  const value = metrics.speedup(main, run.plain);
  const values = {
    tokens: main.tokens.length,
    speedup: value === null ? "" : say("spoken_speedup", { speedup: value.toFixed(1) }),
  };
  parts.voice.textContent = !begun
    ? say("spoken_start")
    : state.lost === run
      ? say("connection_lost", { n: main.tokens.length })
      : say(run.finished ? "spoken_end" : "spoken_progress", values);
  spoken = { run: run.id, at: performance.now(), end: begun && run.finished };
}

function tabChanged(tab) {
  const { parts } = screen;
  if (parts.composer) parts.placeComposer(tab);
  parts.root.dataset.tab = tab;
  parts.placeScrubber(tab);
  if (tab === "recordings") parts.recordings.draw();
}

export function mountView(element, props, watch, server, host) {
  Object.assign(screen, { server, host: host ?? { questions: [] } });
  storeOnDisk(Boolean(host?.storeChats));
  setFormWith(host?.setForm);
  const parts = (screen.parts = buildParts(element.querySelector(".jk-view")));
  drawWith(draw);
  onTab.push(tabChanged);
  document.body.dataset.jakiroTab = parts.root.dataset.tab = state.tab;
  const sizes = new ResizeObserver(() => redraw());
  document
    .querySelectorAll(".gradio-container, .jk-view, .jk-top, #question-row")
    .forEach((one) => sizes.observe(one));
  new MutationObserver(() => redraw()).observe(document.body, { attributeFilter: ["class"] });
  if (watch) watch("value", () => receive(props.value));
  if (server) {
    chip.ready.then(() => redraw());
    restore();
    const link = addressed();
    parts.recordings.first(link);
    watchAddress(link, server);
    watchConnection();
  }
  redraw();
  return parts;
}

// A saved page: a recording with the tabs it has something to show in
export function openReplay() {
  const text = document.getElementById("jakiro-recording").textContent;
  const found = readTraceFile(text);
  const room = document.getElementById("replay");
  document.body.classList.add("replay");
  mountReplayTop(room, Object.keys(found.traces).length > 1 ? ["watch", "race"] : ["watch"]);
  mountView(room, {}, null, null);
  showRecording("replay", { ...found, text }, { playNow: false });
}
