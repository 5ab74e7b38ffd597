// Every pane of the view, built once and handed to the view, which only fills it.

import { h, linkButton, say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { RecordingsView } from "../data/recordings.js";
import { onKey } from "./keys.js";
import { moves, state } from "./machine.js";
import { pageMenu } from "./menu.js";
import { RaceView } from "../race/race.js";
import { Alternatives } from "../watch/alternatives.js";
import { AnswerView } from "../watch/answer.js";
import { BranchBar } from "../watch/branches.js";
import { Headline } from "../watch/facts.js";
import { plotPane, treePane } from "../watch/figure.js";
import { Plot } from "../watch/plot.js";

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
    headline,
    parts.turns,
  );
  const pane = h(
    "section",
    { class: "pane answer-pane", "aria-label": say("answer") },
    h("h2", { class: "voice" }, say("answer")),
    parts.waiting[0].element,
    parts.answerScroll,
  );
  parts.alternatives = new Alternatives(pane, (index) =>
    parts.answerText.querySelector(`[data-token="${index}"]`),
  );
  parts.answer = new AnswerView(parts.answerText, (index) => {
    const { step } = state.run.main.tokens[index];
    if (step >= 0) moves.seek(step);
    parts.alternatives.open(state.run, index);
  });
  return pane;
}

export function buildParts(root) {
  const parts = { root, waiting: [new WaitingBox(), new WaitingBox()] };
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
  const scrubber = parts.playBar.host;
  const columns = h(
    "div",
    { class: "columns watch-only" },
    chat,
    tree,
    scrubber,
    plotPane(plotHost),
  );
  parts.placeScrubber = (tab) =>
    tab === "race" ? parts.race.more.before(scrubber) : tree.after(scrubber);
  root.append(columns, parts.race.element, parts.keysHint, parts.recordings.element, parts.voice);
  const menu = pageMenu();
  (document.querySelector(".jk-header") || root).append(menu);
  parts.guess = menu.querySelector('[data-toggle="guess_first"]');
  root.tabIndex = -1;
  document.addEventListener("keydown", (event) => onKey(event, parts));
  return parts;
}
