// The race: lanes side by side at one common race time, each with its own clock; a lane shows only tokens whose own
// time has come, whichever lane's turn it is.
(() => {
  const { h, say, rate, number, apart, metrics } = Jakiro;

  class LaneView {
    constructor({ name, title }, role) {
      this.name = h("b", null, title);
      this.clock = h("span", { class: "own-clock tabular", "data-clock": name });
      this.rate = h("span", { class: "muted tabular" });
      this.progress = h("span", { class: "progress-fill" });
      this.done = h("span", { class: "muted tabular" });
      this.host = h("div", { class: "answer-host" });
      this.scroll = h("div", { class: "answer-scroll", tabindex: 0 }, this.host);
      this.tree = new Jakiro.SmallTree();
      this.element = h("section", { class: `pane lane lane-${role}`, "data-lane": name },
        h("div", { class: "pane-head" }, this.name, this.clock, h("span", { class: "muted" }, say("own_clock")),
          h("span", { class: "gap" }), this.rate),
        h("div", { class: "progress-line" }, h("span", { class: "progress" }, this.progress), this.done),
        h("div", { class: "lane-body" }, this.scroll, this.tree.element));
      this.answer = new Jakiro.AnswerView(this.host, { onPick: () => {}, onPreview: () => {} });
    }

    draw(lane, time, other, selected, withTree) {
      const steps = lane.stepsAt(time);
      const count = lane.countAfter(steps - 1);
      const limit = lane.header.sampling.max_new_tokens;
      const total = lane.endReason ? lane.tokens.length : limit;
      this.clock.textContent = `${number(Math.min(time, lane.clock), 1)} s`;
      const speed = metrics.speed(lane, steps);
      this.rate.textContent = speed === null ? say("measuring") : `${rate(speed)} tokens/s`;
      this.progress.style.width = `${(100 * count) / total}%`;
      this.done.textContent = say("lane_progress", { done: count, length: total });
      this.answer.draw(lane, count, { live: !lane.endReason || count < lane.tokens.length, selected, tail: "" });
      this.mark(lane, count, other);
      this.tree.draw(lane, withTree && !lane.isPlain ? steps - 1 : -1);
      if (count !== this.count) this.scroll.scrollTop = this.scroll.scrollHeight;
      this.count = count;
    }

    // In the leading lane: where the slower one is now
    mark(lane, count, other) {
      this.host.querySelectorAll(".plain-here").forEach((token) => token.classList.remove("plain-here"));
      if (!other || other >= count || lane.isPlain) return;
      const unit = this.answer.drawn.find((one) => one.last >= other - 1);
      if (!unit) return;
      unit.element.classList.add("plain-here");
      unit.element.dataset.here = say("plain_is_here");
    }
  }

  class RaceView {
    constructor(plotPane, waiting, on) {
      this.lanes = h("div", { class: "lanes" });
      this.lead = h("div", { class: "lead tabular" });
      this.empty = h("p", { class: "muted empty" }, say("race_empty"));
      this.card = h("section", { class: "pane result-card", "aria-label": say("card_title") });
      this.table = h("div", { class: "lanes-table-host" });
      this.unequal = h("p", { class: "unequal-heads" });
      this.replay = h("button", { class: "plain-button start-race", onclick: () => on.play(true) });
      this.element = h("div", { class: "race race-only" }, this.empty, waiting, this.lanes,
        h("div", { class: "lead-line" }, this.lead, h("p", { class: "muted race-note" }, say("race_note")),
          this.replay),
        this.unequal,
        this.table, h("div", { class: "race-below" }, plotPane, this.card));
      this.views = [];
    }

    draw(state, time) {
      const { run } = state;
      if (state.tab !== "race") return;
      const present = run ? run.ordered : [];
      this.empty.hidden = present.length > 1;
      this.empty.textContent = say(present.length === 1 && run.finished ? "race_alone" : "race_empty");
      this.replay.hidden = !run || !run.finished;
      this.replay.textContent = say(state.playing ? "pause" : time === 0 ? "start_race" : "replay_race");
      const key = JSON.stringify(present.map((lane) => [lane.name, lane.title, run.roleOf(lane)]));
      if (key !== this.key) {
        this.views = present.map((lane) => new LaneView(lane, run.roleOf(lane)));
        this.lanes.replaceChildren(...this.views.map((view) => view.element));
        this.lanes.dataset.count = present.length;
        this.unequal.textContent = run ? run.unequalHeads : "";
        this.unequal.hidden = !this.unequal.textContent;
        this.key = key;
      }
      const plain = run && run.plain;
      const plainCount = plain ? plain.countAfter(plain.stepsAt(time) - 1) : null;
      const arena = present.length > 2;
      present.forEach((lane, i) => this.views[i].draw(lane, time, plainCount, lane === run.main ? state.index : -1, arena));
      this.lead.textContent = this.leadWords(run, time);
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
      Jakiro.fillResultCard(this.card, over);
      this.table.replaceChildren(...[Jakiro.lanesTable(over)].filter(Boolean));
    }
  }

  Object.assign(Jakiro, { RaceView });
})();
