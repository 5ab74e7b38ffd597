// The race: bars and lanes in parallel at one race time; a lane shows only tokens that are written by its own time.

import {
  apart,
  bold,
  clockOf,
  counted,
  h,
  linkButton,
  number,
  radios,
  rate,
  say,
} from "../base/dom.js";
import { trainedWords, unequalHeads } from "../data/methods.js";
import { metrics } from "../data/metrics.js";
import { change, moves, screen } from "../page/machine.js";
import { openSetting } from "../page/top.js";
import { fillResultCard, verdict } from "./result_card.js";
import { showLarge } from "../tree/dialog.js";
import { AnswerView } from "../watch/answer.js";

// Number of tokens in the race: that of the longest lane, or its limit
const tokensOf = (lanes) =>
  Math.max(
    1,
    ...lanes.map((lane) =>
      lane.endReason ? lane.tokens.length : lane.header.sampling.max_new_tokens,
    ),
  );

// Round numbers from 0 up to `highest`, at most six of them
function ticksTo(highest) {
  const power = 10 ** Math.floor(Math.log10(highest / 5));
  const step = power * [1, 2, 5, 10].find((times) => 5 * times * power >= highest * 0.999);
  return Array.from({ length: Math.floor(highest / step + 1e-6) + 1 }, (_, i) =>
    Number((i * step).toPrecision(6)),
  );
}

// The result in one line: the first method, its lead, and whether the texts are equal
const finalWords = (run) =>
  metrics.partsAt(run) !== null
    ? verdict(run)
    : say("race_verdict", { verdict: verdict(run).replace(/\.$/, ""), same: say("race_same") });

// Replay speeds of the race, as factors of real time
const SPEEDS = [1, 1 / 4, 1 / 10];

// The large number: the factor at the end, before it the tokens that the drafting lane is ahead
function hugeWords(run, time, over) {
  const { main, plain } = run;
  if (!plain || plain === main) return "";
  if (!over) {
    const [mine, theirs] = [main, plain].map((lane) => lane.countAt(time));
    return time && mine > theirs ? say("race_ahead", { n: mine - theirs }) : "";
  }
  const factor = metrics.speedup(main, plain);
  if (factor === null) return "";
  return say(factor >= 1 ? "race_faster" : "race_slower", { factor: number(factor, 1) });
}

// The lanes of a race, the tree's one first
const lanesOf = (run) => (run ? [...new Set([run.main, ...run.ordered])].filter(Boolean) : []);

// Lanes with almost no accepted candidates
const FEW_KEPT = 1.15; // tokens a step
function idleWords(run) {
  const idle = run.ordered
    .filter((lane) => !lane.isPlain && metrics.tau(lane.steps) < FEW_KEPT)
    .map((lane) => lane.title);
  return run.finished && run.ordered.length > 2 && idle.length
    ? say("race_idle", { lanes: idle.join(", ") })
    : "";
}

// A lane's text and its bar: while lanes write, the tokens out of all; at the end, its seconds
class LaneView {
  constructor(lane, role) {
    const { name, title, headMinutes } = lane;
    this.fill = h("span.race-fill");
    this.clock = h("b.own-clock.tabular", { "data-clock": name });
    this.flag = h("span.race-flag", { "aria-hidden": "true" }, "⚑");
    this.done = h("span.muted.tabular");
    this.bar = h(
      "div",
      { class: `race-bar lane-${role}` },
      h("span.race-name", { title: trainedWords(headMinutes) }, title),
      h("span.race-track", this.fill, this.flag, this.clock, this.done),
    );
    this.rate = h("span.muted.tabular");
    this.host = h("div.answer-host");
    this.scroll = h("div.answer-scroll", { tabindex: 0 }, this.host);
    this.tree = linkButton("lane_tree", () => showLarge(this.tree, this.lane, this.steps - 1), "");
    this.element = h(
      "section",
      { class: `pane lane lane-${role}`, "data-lane": name },
      h("div.pane-head", h("b", title), this.rate, this.tree),
      this.scroll,
    );
    this.answer = new AnswerView(this.host);
  }

  draw(lane, time, { selected, withTree, total, longest, over, formatted }) {
    const steps = lane.stepsAt(time);
    const count = lane.countAfter(steps - 1);
    const finished = Boolean(lane.endReason) && count === lane.tokens.length;
    this.fill.style.setProperty("--share", over ? lane.clock / longest : count / total);
    this.flag.hidden = !finished || over;
    this.clock.textContent = `${clockOf(Math.min(time, lane.clock))} s`;
    this.done.textContent = finished
      ? counted("token", count)
      : say("lane_progress", { done: count, length: total });
    const speed = metrics.speed(lane, steps);
    this.rate.textContent =
      speed === null ? (over ? "" : say("measuring")) : `${rate(speed)} tokens/s`;
    this.answer.draw(lane, count, { live: !finished, selected, formatted });
    this.tree.hidden = !withTree || lane.isPlain || !steps;
    this.tree.textContent = say("lane_tree", { step: steps });
    if (over !== this.over || count !== this.count)
      this.scroll.scrollTop = over ? 0 : this.scroll.scrollHeight;
    Object.assign(this, { lane, steps, count, over });
  }
}

export class RaceView {
  constructor(plotPane, waiting) {
    this.lead = h("p.lead.tabular");
    this.replay = h("button.plain-button.start-race", {
      onclick: () => moves.play(true),
    });
    this.huge = h("p.huge.tabular");
    this.speeds = radios(
      "race-speed",
      say("race_speed"),
      SPEEDS.map((speed) => [speed, say(`race_speed_${1 / speed}`)]),
      (raceSpeed) => change({ raceSpeed }),
    );
    this.axis = h("div.race-axis.muted");
    this.bars = h("div.race-bars", { role: "img" });
    this.choice = h("div.lane-choice", { role: "group" });
    this.lanes = h("div.lanes");
    this.title = h("h2.race-title", { dir: "auto" });
    this.add =
      screen.server &&
      h(
        "div.race-add",
        linkButton("race_add", () => openSetting("further-lanes")),
        linkButton("race_tree", () => openSetting("tree")),
      );
    this.empty = h("p.muted.empty", say("race_empty"));
    this.card = h("section.result-card", { "aria-label": say("card_title") });
    this.unequal = h("p.unequal-heads");
    this.more = h(
      "details.question-line.race-more",
      h("summary", say("race_more")),
      h("p.muted.race-note", say("race_note")),
      this.card,
    );
    this.element = h(
      "div.race.race-only",
      this.empty,
      waiting,
      this.title,
      h("div.lead-line", this.huge, this.lead, this.replay, this.speeds.element),
      this.bars,
      this.add || "",
      this.unequal,
      plotPane,
      this.choice,
      this.lanes,
      this.more,
    );
    this.views = [];
  }

  draw(state, time) {
    const { run } = state;
    const present = lanesOf(run);
    this.element.dataset.lanes = present.length;
    this.empty.hidden = present.length > 1;
    this.empty.textContent = say(
      present.length === 1 && run.finished ? "race_alone" : "race_empty",
    );
    this.replay.hidden = this.speeds.element.hidden = !run?.finished;
    this.speeds.mark(state.raceSpeed);
    this.replay.textContent = say(
      state.playing ? "pause" : time === 0 ? "start_race" : "replay_race",
    );
    const key = JSON.stringify(present.map((lane) => [lane.name, lane.title, run.roleOf(lane)]));
    if (key !== this.key) {
      this.views = present.map((lane) => new LaneView(lane, run.roleOf(lane)));
      this.lanes.replaceChildren(...this.views.map((view) => view.element));
      this.bars.replaceChildren(...this.views.map((view) => view.bar), this.axis);
      this.choice.replaceChildren(
        ...present.map((lane) =>
          h(
            "button.plain-button",
            {
              "data-choose": lane.name,
              onclick: () => this.choose(lane.name),
            },
            lane.title,
          ),
        ),
      );
      if (present.length) this.choose((run.main || present[0]).name);
      this.lanes.dataset.count = present.length;
      this.key = key;
    }
    this.title.textContent = run?.question ?? "";
    this.unequal.textContent =
      `${unequalHeads(present.map((lane) => [lane.title, lane.headMinutes]))} ${run ? idleWords(run) : ""}`.trim();
    this.unequal.hidden = !this.unequal.textContent;
    const over = Boolean(run?.finished) && present.every((lane) => time >= lane.clock);
    const total = tokensOf(present);
    const longest = Math.max(...present.map((lane) => lane.clock));
    this.element.classList.toggle("over", over);
    const axis = over ? say("plot_seconds") : say("race_axis_tokens", { total });
    this.drawAxis(over ? longest : total, axis);
    // The fastest lane is first, once the race is over
    const ranked = over ? present.toSorted((a, b) => a.clock - b.clock) : present;
    ranked.forEach((lane, i) => (this.views[present.indexOf(lane)].bar.style.order = i));
    const huge = run ? hugeWords(run, time, over) : "";
    this.huge.hidden = !huge;
    this.huge.replaceChildren(...bold(huge));
    present.forEach((lane, i) =>
      this.views[i].draw(lane, time, {
        selected: lane === run.main ? state.index : -1,
        withTree: present.length > 2,
        total,
        longest,
        over,
        formatted: state.formatted,
      }),
    );
    this.lead.textContent =
      !run?.plain || run.plain === run.main
        ? ""
        : over
          ? finalWords(run)
          : this.leadWords(run, time);
    this.bars.setAttribute(
      "aria-label",
      [
        ...ranked.map((lane) =>
          say("race_clock", { lane: lane.title, seconds: clockOf(Math.min(time, lane.clock)) }),
        ),
        axis,
      ].join(" · "),
    );
  }

  drawAxis(highest, words) {
    if (this.axis.dataset.key === `${highest} ${words}`) return;
    this.axis.dataset.key = `${highest} ${words}`;
    const tick = (value) => h("i", { style: `--share: ${value / highest}` }, value);
    this.axis.replaceChildren(...ticksTo(highest).map(tick), words);
  }

  // On narrow screens one text is shown: they are the same
  choose(name) {
    this.views.forEach(({ element }) =>
      element.classList.toggle("chosen", element.dataset.lane === name),
    );
    this.choice.childNodes.forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.choose === name)),
    );
  }

  // Plain clock minus a drafting lane's at the last token both have, of the lane that leads by most
  leadWords(run, time) {
    const { plain } = run;
    const leads = run.ordered
      .filter((lane) => lane !== plain)
      .map((lane) => {
        const common = Math.min(
          lane.countAfter(lane.stepsAt(time) - 1),
          plain.countAfter(plain.stepsAt(time) - 1),
        );
        return common < metrics.FEWEST_TOKENS
          ? null
          : { lane, lead: plain.secondsTo(common) - lane.secondsTo(common) };
      });
    if (leads.includes(null)) return time === 0 ? "" : say("measuring");
    const { lane, lead } = leads.reduce((first, next) => (next.lead > first.lead ? next : first));
    return say("leads", { lane: (lead >= 0 ? lane : plain).title, lead: apart(lead) });
  }

  // The result waits for the end of the race, also of one that is played again
  drawResult(run, time) {
    const over = time === Infinity || (run && !run.finished) ? run : null;
    const key =
      over && `${over.id}/${over.finished}/${over.finished || Object.keys(over.lanes).length}`;
    if (key === this.result) return;
    this.result = key;
    fillResultCard(this.card, over);
  }
}
