// Every pane of the view, built once and handed to the view, which only fills it.

import { h, linkButton, radios, say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { bigTree } from "../chat/asking.js";
import { RecordingsView } from "../data/recordings.js";
import { onKey } from "./keys.js";
import { change, moves, redrawNow, state } from "./machine.js";
import { pageMenu } from "./menu.js";
import { RaceView } from "../race/race.js";
import { Card } from "../tree/card.js";
import { showLarge } from "../tree/dialog.js";
import { TreeView } from "../tree/tree.js";
import { Alternatives } from "../watch/alternatives.js";
import { AnswerView, Legend } from "../watch/answer.js";
import { Headline } from "../watch/facts.js";
import { BranchBar } from "../watch/branches.js";
import { Plot } from "../watch/plot.js";
import { Scrubber } from "../watch/scrubber.js";

// Shows what is drawn in `host` as a table instead
const tableToggle = (host) =>
  h(
    "button",
    {
      class: "toggle",
      "data-toggle": "read_as_table",
      "aria-pressed": "false",
      onclick({ currentTarget }) {
        const on = !host.dataset.table;
        currentTarget.setAttribute("aria-pressed", String(on));
        host.dataset.table = on ? "1" : "";
        host.tabIndex = on ? 0 : -1; // a table may scroll inside its place
        redrawNow();
      },
    },
    say("read_as_table"),
  );

const MOST_QUESTION = 200;

// A question that waits: on top at once, with what it waits for and a way out of the queue
class WaitingBox {
  constructor() {
    this.question = h("b", { dir: "auto" });
    this.words = h("span");
    this.leave = linkButton(
      "leave",
      () => document.querySelector("#stop").click(),
      say("leave_queue"),
    );
    this.element = h(
      "div",
      { class: "waiting", role: "status", hidden: true },
      this.question,
      this.words,
      this.leave,
    );
  }

  draw(run) {
    this.element.hidden = !run;
    if (!run) return;
    this.words.textContent = run.waiting || say("reading");
    this.question.textContent = cut(run.form?.question || run.typed || "", MOST_QUESTION);
    this.leave.hidden = !run.waiting;
  }
}

function chatPane(parts) {
  const headline = h("div", {
    class: "headline",
    role: "group",
    "aria-label": say("numbers"),
    hidden: true,
  });
  parts.headline = new Headline(headline);
  parts.earlier = h("div", { class: "earlier", hidden: true });
  parts.question = h("p", { class: "asked", dir: "auto" });
  parts.sentWith = h("p", { class: "sent-with muted" });
  parts.empty = h("p", { class: "muted empty" }, say("empty_answer"));
  parts.answerText = h("div", { class: "answer-host" });
  parts.turns = h("div", { class: "turn-actions" });
  parts.branches = new BranchBar();
  parts.answerScroll = h(
    "div",
    { class: "answer-scroll", id: "jk-answer", tabindex: -1 },
    parts.earlier,
    parts.question,
    parts.sentWith,
    parts.branches.element,
    parts.empty,
    parts.answerText,
    parts.turns,
  );
  const legend = h("div", { class: "legend" });
  const pane = h(
    "section",
    { class: "pane answer-pane", "aria-label": say("answer") },
    h("h2", { class: "voice" }, say("answer")),
    headline,
    parts.waiting[0].element,
    parts.answerScroll,
    h("div", { class: "legend-line" }, legend),
  );
  parts.alternatives = new Alternatives(pane, (index) =>
    parts.answerText.querySelector(`[data-token="${index}"]`),
  );
  parts.answer = new AnswerView(parts.answerText, (index) => {
    const { step } = state.run.main.tokens[index];
    if (step >= 0) moves.seek(step);
    parts.alternatives.open(state.run, index);
  });
  parts.legend = new Legend(legend);
  return pane;
}

// A plot is drawn in `host`; what can be chosen shows itself while pointer or focus are in the pane
function plotPane(host) {
  const mode = (name, key) =>
    h(
      "button",
      { class: "toggle", "data-plot-mode": name, onclick: () => change({ plotMode: name }) },
      say(key),
    );
  return h(
    "section",
    { class: "pane plot-pane", "aria-label": say("speed") },
    h(
      "div",
      { class: "pane-head" },
      h("h2", null, say("speed")),
      h("span", { class: "gap" }),
      h(
        "div",
        { class: "on-demand" },
        mode("tokens", "plot_tokens"),
        mode("speed", "plot_speed"),
        tableToggle(host),
      ),
    ),
    host,
  );
}

function treePane(parts) {
  parts.watchHost = h("div");
  parts.treeLine = h("p", { class: "tree-line muted tabular" });
  parts.phases = radios(
    "phase",
    say("phases"),
    [1, 2, 3].map((phase) => [phase, h("b", null, String(phase)), say(`phase_${phase}`)]),
    moves.setPhase,
  );
  parts.treeHost = h("div", { class: "tree-host", tabindex: 0 });
  parts.listHost = h("div", { class: "list-host", tabindex: 0, hidden: true });
  parts.ladderHost = h("div", { class: "ladder-host", hidden: true });
  parts.wholeTree = h(
    "button",
    {
      class: "plain-button whole-tree",
      onclick: () => showLarge(parts.wholeTree, state.run.main, state.index, state.phase),
    },
    say("whole_tree"),
  );
  parts.key = h("p", { class: "tree-key muted" });
  parts.treeEmpty = h("p", { class: "muted empty" }, say("no_steps"));
  parts.smallTrees = h(
    "p",
    { class: "muted small-trees", hidden: true },
    say("small_trees"),
    " ",
    linkButton("big_tree", bigTree),
  );
  const pane = h(
    "section",
    { class: "pane tree-pane", "aria-label": say("draft_tree") },
    h("h2", { class: "voice" }, say("draft_tree")),
    parts.watchHost,
    parts.phases.element,
    parts.treeLine,
    h(
      "div",
      { class: "tree-room" },
      parts.treeEmpty,
      parts.treeHost,
      parts.listHost,
      parts.ladderHost,
    ),
    parts.wholeTree,
    parts.key,
    parts.smallTrees,
  );
  parts.card = new Card(pane);
  parts.tree = new TreeView(parts.treeHost, parts.card);
  return pane;
}

// Closed lines under the fold, each drawn only while it is open: {name: (host) => draws it for the step on screen}
function questions(parts) {
  parts.mask = h("div", { class: "mask-host", tabindex: 0 });
  parts.router = h("div", { class: "router-host" });
  parts.budget = h("div", { class: "budget-host" });
  parts.numbers = h("div", { class: "numbers-host" });
  const line = (name, host) =>
    h(
      "details",
      { class: `question-line panel-${name}`, ontoggle: () => redrawNow() },
      h("summary", null, say(`ask_${name}`)),
      host,
    );
  parts.panels = h(
    "details",
    { class: "question-line panels watch-only" },
    h("summary", null, say("ask_more")),
    line("mask", parts.mask),
    line("router", parts.router),
    line("budget", parts.budget),
    line("numbers", parts.numbers),
  );
  return parts.panels;
}

export function buildParts(root) {
  const parts = { root, waiting: [new WaitingBox(), new WaitingBox()] };
  const scrubber = h("div", { class: "scrubber" });
  parts.voice = h("div", { class: "voice", role: "status", "aria-live": "polite" });
  const plotHost = h("div", { class: "plot-host" });
  const racePlotHost = h("div", { class: "plot-host" });
  parts.plot = new Plot(plotHost);
  parts.racePlot = new Plot(racePlotHost);
  parts.race = new RaceView(plotPane(racePlotHost), parts.waiting[1].element);
  parts.recordings = new RecordingsView();
  parts.keysHint = h("p", { class: "muted keys-hint" });
  const tree = treePane(parts);
  const chat = chatPane(parts);
  parts.playBar = new Scrubber(scrubber, parts.watchHost);
  const columns = h(
    "div",
    { class: "columns watch-only" },
    chat,
    scrubber,
    tree,
    plotPane(plotHost),
  );
  // Keys reach the scrubber after the answer or the lanes, and before the tree
  parts.placeScrubber = (tab) => (tab === "race" ? parts.race.more : tree).before(scrubber);
  root.append(
    columns,
    parts.race.element,
    parts.keysHint,
    questions(parts),
    parts.recordings.element,
    parts.voice,
  );
  const menu = pageMenu();
  (document.querySelector(".jk-header") || root).append(menu);
  parts.guess = menu.querySelector('[data-toggle="guess_first"]');
  root.tabIndex = -1;
  document.addEventListener("keydown", (event) => onKey(event, parts));
  return parts;
}
