// The number strip: five numbers, each beside its definition, and a dash where something was not measured.
(() => {
  const { h, say, number, rate, wholePercent, metrics } = Jakiro;

  const characters = (lane, count) => {
    const { units } = Jakiro;
    const bytes = lane.tokens.slice(0, count).map((token) => (token.special ? new Uint8Array() : token.bytes));
    return units(bytes).reduce((sum, unit) => sum + Array.from(unit.text).length, 0);
  };

  // What the same-text check says: {value, short, note, state: "same", "different" or "none"}
  function sameText(run) {
    const { main, plain } = run;
    if (!plain || plain === main) return { value: say("not_measured"), note: say("same_alone"), state: "none" };
    const different = metrics.firstDifference(main, plain);
    if (different !== null) {
      const margin = metrics.marginAt(plain, different);
      return { value: say("same_no", { token: different + 1 }), state: "different",
        note: margin === null ? "" : say("same_no_note", { margin: margin.toPrecision(2) }) };
    }
    const tokens = Math.min(main.tokens.length, plain.tokens.length);
    return { value: say("same_yes", { characters: number(characters(main, tokens), 0), tokens: number(tokens, 0) }),
      note: say("metric_same_note"), state: "same" };
  }

  function speedupWords(value) {
    if (value === null) return null;
    return `${number(value, 2)}×${value < 1 ? ` ${say("slower")}` : ""}`;
  }

  class Strip {
    constructor(host) {
      this.cells = {};
      for (const name of ["speedup", "tau", "same", "rate", "acceptance"]) {
        const value = h("div", { class: "metric-value", "data-metric": name });
        const note = h("div", { class: "metric-note" });
        this.cells[name] = { value, note };
        host.append(h("div", { class: `metric metric-${name}` }, h("div", { class: "metric-name" }, say(`metric_${name}`)),
          value, note));
        note.textContent = say(`metric_${name}_note`, { plain: say("not_measured") });
      }
    }

    set(name, value, note) {
      const cell = this.cells[name];
      if (cell.value.textContent !== value) cell.value.textContent = value;
      if (note !== undefined && cell.note.textContent !== note) cell.note.textContent = note;
    }

    // The numbers as they stood after `steps` of the main lane; all of it when undefined
    draw(run, steps) {
      const none = say("not_measured");
      if (!run || !run.main) {
        for (const name of Object.keys(this.cells)) this.set(name, none);
        return;
      }
      const { main, plain } = run;
      const taken = steps === undefined ? main.steps : main.steps.slice(0, steps);
      const waiting = run.finished ? none : say("measuring");
      const speedup = metrics.speedup(main, plain, steps);
      this.set("speedup", plain ? speedupWords(speedup) || waiting : none, say(plain ? "metric_speedup_note" : "same_alone"));
      const tau = metrics.tau(taken);
      this.set("tau", tau === null ? none : number(tau, 2));
      const same = sameText(run);
      this.set("same", same.value, same.note);
      this.cells.same.value.dataset.state = same.state;
      const speed = metrics.speed(main, steps);
      const plainSpeed = plain ? metrics.speed(plain) : null;
      this.set("rate", speed === null ? waiting : rate(speed),
        plain ? say("metric_rate_note", { plain: rate(plainSpeed) }) : say("metric_rate_note_alone"));
      const acceptance = metrics.acceptance(taken);
      this.set("acceptance", acceptance === null ? none : wholePercent(acceptance));
    }
  }

  Object.assign(Jakiro, { Strip, sameText, speedupWords });
})();
