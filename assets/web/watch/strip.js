// The number strip: five numbers, each beside its definition, and a dash where something was not measured.
(() => {
  const { h, say, counted, number, rate, wholePercent, metrics, unitsOf, usualMethod } = Jakiro;

  const NEAR_TIE = 0.5;

  const characters = (lane, count) => unitsOf(lane.tokens.slice(0, count)).reduce((sum, unit) => sum + Array.from(unit.text).length, 0);

  // What the same-text check says: {value, note, state: "same", "different" or "none", step: where they part}
  function sameText(run, steps) {
    const { main, plain } = run;
    if (!plain || plain === main) return { value: say("not_measured"), note: say("same_alone"), state: "none" };
    const different = metrics.partsAt(run);
    if (different !== null && (steps === undefined || different < main.countAfter(steps - 1))) {
      const margin = metrics.marginAt(plain, different);
      const { step } = main.tokens[Math.min(different, main.tokens.length - 1)];
      return { value: say("same_no", { token: different + 1 }), state: "different", step: Math.max(0, step),
        note: margin === null ? ""
          : say(margin < NEAR_TIE ? "same_no_note" : "same_no_wide", { margin: margin.toPrecision(2) }) };
    }
    const shown = steps === undefined ? main.tokens.length : main.countAfter(steps - 1);
    const tokens = Math.min(shown, plain.tokens.length);
    const values = { characters: counted("character", characters(main, tokens)), tokens: counted("token", tokens) };
    return { value: say("same_yes", values),
      note: say("metric_same_note"), state: "same" };
  }

  function speedupWords(value) {
    if (value === null) return null;
    return `${number(value, 2)}×${value < 1 ? ` ${say("slower")}` : ""}`;
  }

  // What τ counts; where the answer's end cut something off, also what it was before
  function tauNote(steps) {
    const [delivered, drafted] = [metrics.tau(steps), metrics.tauDrafted(steps)];
    return delivered === drafted ? say("metric_tau_note") : say("metric_tau_note_cut", { drafted: number(drafted, 2) });
  }

  class Strip {
    // `onShow` is called with the step at which two texts part
    constructor(host, onShow) {
      this.cells = {};
      for (const name of ["speedup", "tau", "same", "rate", "acceptance"]) {
        const value = h("div", { class: "metric-value", "data-metric": name });
        const note = h("div", { class: "metric-note" });
        this.cells[name] = { value, note };
        host.append(h("div", { class: `metric metric-${name}` }, h("div", { class: "metric-name" }, say(`metric_${name}`)),
          value, note));
        note.textContent = say(`metric_${name}_note`, { plain: say("not_measured"), lane: usualMethod.title });
      }
      this.show = h("button", { class: "link-button", hidden: true, onclick: () => onShow(this.partsAt) }, say("show"));
      this.cells.same.note.after(this.show);
    }

    set(name, value, note) {
      const cell = this.cells[name];
      if (cell.value.textContent !== value) cell.value.textContent = value;
      cell.value.classList.toggle("words", value === say("measuring"));
      if (note !== undefined && cell.note.textContent !== note) cell.note.textContent = cell.note.title = note;
    }

    // The numbers as they stood after `steps` of the main lane; all of it when undefined
    draw(run, steps) {
      const none = say("not_measured");
      if (!run || !run.main) {
        for (const name of Object.keys(this.cells)) this.set(name, none);
        this.show.hidden = true;
        return;
      }
      const { main, plain } = run;
      const taken = steps === undefined ? main.steps : main.steps.slice(0, steps);
      const waiting = run.finished ? none : say("measuring");
      this.drawSpeedup(run, steps, waiting);
      const tau = metrics.tau(taken);
      this.set("tau", tau === null ? none : number(tau, 2), tauNote(taken));
      const same = sameText(run, steps);
      this.set("same", same.value, same.note);
      this.cells.same.value.dataset.state = same.state;
      this.show.hidden = same.state !== "different";
      this.partsAt = same.step;
      const speed = metrics.speed(main, steps);
      const plainSpeed = plain ? metrics.speed(plain) : null;
      this.set("rate", speed === null ? waiting : rate(speed),
        say(plain ? "metric_rate_note" : "metric_rate_note_alone", { lane: main.title, plain: rate(plainSpeed) }));
      const acceptance = metrics.acceptance(taken);
      this.set("acceptance", acceptance === null ? none : wholePercent(acceptance));
    }

    // Against the plain lane beside it; without one, against the last plain decoding measured here
    drawSpeedup(run, steps, waiting) {
      if (run.plain) {
        const speedup = metrics.speedup(run.main, run.plain, steps);
        this.set("speedup", speedupWords(speedup) || waiting, say("metric_speedup_note", { lane: run.main.title }));
        return;
      }
      const earlier = Jakiro.baseline.against(run, steps);
      if (earlier) this.set("speedup", `≈ ${number(earlier.speedup, 1)}×`, say("baseline_note", { minutes: earlier.minutes }));
      else this.set("speedup", say("not_measured"), say("same_alone"));
    }
  }

  Object.assign(Jakiro, { Strip, sameText, speedupWords, tauNote });
})();
