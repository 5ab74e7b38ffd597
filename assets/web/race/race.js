// The race: bars on one time axis, and lanes side by side at one common race time; a lane shows only tokens whose own time
// has come, whichever lane's turn it is.

import { apart, clockOf, counted, h, rate, say } from "../base/dom.js";
import { trainedWords } from "../data/methods.js";
import { metrics } from "../data/metrics.js";
import { moves } from "../page/machine.js";
import { lanesTable } from "./lanes_table.js";
import { fillResultCard } from "./result_card.js";
import { showLarge } from "../tree/dialog.js";
import { AnswerView } from "../watch/answer.js";
import { speedupWords } from "../watch/facts.js";

// A lane's bar on the time axis that all share: as long as its own clock has run
class Bar {
  constructor({ name, title, headMinutes }, role) {
    this.fill = h("span", { class: "race-fill" });
    this.clock = h("b", { class: "own-clock tabular", "data-clock": name });
    this.done = h("span", { class: "muted tabular" });
    this.element = h("div", { class: `race-bar lane-${role}` }, h("span", { class: "race-name", title: trainedWords(headMinutes) }, title),
      h("span", { class: "race-track" }, this.fill, this.clock, this.done));
  }

  draw(lane, time, axis) {
    const seconds = Math.min(time, lane.clock);
    const count = lane.countAt(time);
    this.fill.style.setProperty("--share", seconds / axis);
    this.clock.textContent = `${clockOf(seconds)} s`;
    this.done.textContent = lane.endReason && count === lane.tokens.length ? counted("token", count)
      : say("lane_progress", { done: count, length: lane.endReason ? lane.tokens.length : lane.header.sampling.max_new_tokens });
  }
}

// How long a lane takes, or will take to its limit at its pace so far
const expectedSeconds = (lane) => (lane.endReason ? lane.clock
  : (lane.clock * lane.header.sampling.max_new_tokens) / Math.max(1, lane.tokens.length));

// The result in one line: each lane's seconds, how many times as fast, and whether the texts are the same
function finalWords(run) {
  const { main, plain } = run;
  const speedup = speedupWords(metrics.speedup(main, plain));
  const clocks = [...run.ordered.filter((lane) => lane !== plain), plain].map((lane) => say("race_clock", { lane: lane.title, seconds: clockOf(lane.clock) }));
  const parts = metrics.partsAt(run);
  return [...clocks, speedup, parts === null ? say("race_same") : say("same_no", { token: parts + 1 })].filter(Boolean).join(" · ");
}

class LaneView {
  constructor(lane, role) {
    this.bar = new Bar(lane, role);
    this.rate = h("span", { class: "muted tabular" });
    this.host = h("div", { class: "answer-host" });
    this.scroll = h("div", { class: "answer-scroll", tabindex: 0 }, this.host);
    this.tree = h("button", { class: "link-button", "data-action": "lane_tree", onclick: () => showLarge(this.tree, this.lane, this.step) });
    this.element = h("section", { class: `pane lane lane-${role}`, "data-lane": lane.name },
      h("div", { class: "pane-head" }, h("b", null, lane.title), this.rate, this.tree), this.scroll);
    this.answer = new AnswerView(this.host, {});
  }

  draw(lane, time, other, { selected, withTree, axis, over, formatted }) {
    const steps = lane.stepsAt(time);
    const count = lane.countAfter(steps - 1);
    this.bar.draw(lane, time, axis);
    const speed = metrics.speed(lane, steps);
    this.rate.textContent = speed === null ? (over ? "" : say("measuring")) : `${rate(speed)} tokens/s`;
    this.answer.draw(lane, count, { live: !lane.endReason || count < lane.tokens.length, selected, formatted });
    this.mark(lane, count, over ? count : other);
    this.tree.hidden = !withTree || lane.isPlain || !steps;
    this.tree.textContent = say("lane_tree", { step: steps });
    if (over !== this.over || count !== this.count) this.scroll.scrollTop = over ? 0 : this.scroll.scrollHeight;
    Object.assign(this, { lane, step: steps - 1, count, over });
  }

  // In the leading lane: where the slower one is now
  mark(lane, count, other) {
    this.host.querySelectorAll(".plain-here").forEach((token) => token.classList.remove("plain-here"));
    if (!other || other >= count || lane.isPlain) return;
    const unit = this.answer.units.find((one) => one.last >= other - 1);
    const element = unit && this.host.querySelector(`[data-token="${unit.first}"]:not(.sign)`);
    if (!element) return;
    element.classList.add("plain-here");
    element.dataset.here = say("plain_is_here");
  }
}

export class RaceView {
  constructor(plotPane, waiting) {
    this.lead = h("p", { class: "lead tabular" });
    this.replay = h("button", { class: "plain-button start-race", onclick: () => moves.play(true) });
    this.bars = h("div", { class: "race-bars", role: "img" });
    this.choice = h("div", { class: "lane-choice", role: "group" });
    this.lanes = h("div", { class: "lanes" });
    this.empty = h("p", { class: "muted empty" }, say("race_empty"));
    this.card = h("section", { class: "result-card", "aria-label": say("card_title") });
    this.table = h("div", { class: "lanes-table-host" });
    this.unequal = h("p", { class: "unequal-heads" });
    this.more = h("details", { class: "question-line race-more" }, h("summary", null, say("race_more")), h("p", { class: "muted race-note" },
      say("race_note")), this.table, this.card);
    this.element = h("div", { class: "race race-only" }, this.empty, waiting, h("div", { class: "lead-line" }, this.lead, this.replay),
      this.bars, this.unequal, this.choice, this.lanes, plotPane, this.more);
    this.views = [];
  }

  draw(state, time) {
    const { run } = state;
    if (state.tab !== "race") return;
    const present = run ? run.ordered : [];
    this.element.dataset.lanes = present.length;
    this.empty.hidden = present.length > 1;
    this.empty.textContent = say(present.length === 1 && run.finished ? "race_alone" : "race_empty");
    this.replay.hidden = !run || !run.finished;
    this.replay.textContent = say(state.playing ? "pause" : time === 0 ? "start_race" : "replay_race");
    const key = JSON.stringify(present.map((lane) => [lane.name, lane.title, run.roleOf(lane)]));
    if (key !== this.key) {
      this.views = present.map((lane) => new LaneView(lane, run.roleOf(lane)));
      this.lanes.replaceChildren(...this.views.map((view) => view.element));
      this.bars.replaceChildren(...this.views.map((view) => view.bar.element));
      this.choice.replaceChildren(...present.map((lane) => h("button", { class: "plain-button", "data-choose": lane.name,
        onclick: () => this.choose(lane.name) }, lane.title)));
      if (present.length) this.choose((run.main || present[0]).name);
      this.lanes.dataset.count = present.length;
      this.unequal.textContent = run ? run.unequalHeads : "";
      this.unequal.hidden = !this.unequal.textContent;
      this.key = key;
    }
    const plain = run && run.plain;
    const plainCount = plain ? plain.countAfter(plain.stepsAt(time) - 1) : null;
    const over = Boolean(run && run.finished && present.every((lane) => time >= lane.clock));
    const axis = Math.max(0.1, ...present.map(expectedSeconds));
    present.forEach((lane, i) => this.views[i].draw(lane, time, plainCount, { selected: lane === run.main ? state.index : -1,
      withTree: present.length > 2, axis, over, formatted: state.formatted }));
    this.lead.textContent = over && plain && plain !== run.main ? finalWords(run) : this.leadWords(run, time);
    this.bars.setAttribute("aria-label", present.map((lane) => say("race_clock", { lane: lane.title, seconds: clockOf(Math.min(time, lane.clock)) })).join(" · "));
  }

  // On narrow screens one text is shown: they are the same
  choose(name) {
    this.views.forEach(({ element }) => element.classList.toggle("chosen", element.dataset.lane === name));
    this.choice.childNodes.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.choose === name)));
  }

  // Plain clock minus a drafting lane's at the last token both have, of the lane that leads by most
  leadWords(run, time) {
    if (!run || !run.plain || run.plain === run.main) return "";
    const { plain } = run;
    const leads = run.ordered.filter((lane) => lane !== plain).map((lane) => {
      const common = Math.min(lane.countAfter(lane.stepsAt(time) - 1), plain.countAfter(plain.stepsAt(time) - 1));
      return common < metrics.FEWEST_TOKENS ? null : { lane, lead: plain.secondsTo(common) - lane.secondsTo(common) };
    });
    if (leads.includes(null)) return time === 0 ? "" : say("measuring");
    const { lane, lead } = leads.reduce((first, next) => (next.lead > first.lead ? next : first));
    return say("leads", { lane: (lead >= 0 ? lane : plain).title, lead: apart(lead) });
  }

  // The result waits for the end of the race, also of one that is played again
  drawResult(run, time) {
    const over = time === Infinity || (run && !run.finished) ? run : null;
    const key = over && `${over.id}/${over.finished}/${over.finished || Object.keys(over.lanes).length}`;
    if (key === this.result) return;
    this.result = key;
    fillResultCard(this.card, over);
    this.table.replaceChildren(...[lanesTable(over)].filter(Boolean));
  }
}
