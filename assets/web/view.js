// The view: holds what is shown (run, step, phase, tab), decides when each part is drawn, and never slows the model:
// scrubbing, hovering and playing happen here alone.
(() => {
  const { say, counted, Run, runFromTraces, metrics } = Jakiro;

  // Milliseconds between drawings of a part while an answer is being written
  const EVERY = { text: 100, numbers: 250, tree: 500 };
  const FIRST_PLAY_MS = 800;

  const state = {
    tab: "watch", run: null, index: 0, follow: true, phase: 3, guess: false, playing: false, time: null, pace: "1",
    choices: false, showAll: false, list: false, everyStep: false, spaces: false, markdown: false, plotMode: "tokens",
    dimmed: null, turns: [], seen: new Set(),
  };
  let parts = null;

  const lane = () => state.run && state.run.main;
  const live = () => Boolean(state.run && !state.run.finished);

  // Steps of the main lane that may be shown now: all, those up to the playing time, or those before the open guess
  function stepsShown() {
    const main = lane();
    if (!main) return 0;
    if (state.guess && state.phase < 3) return state.index;
    if (state.time !== null) return main.stepsAt(state.time);
    return main.steps.length;
  }

  // ---- drawing -----------------------------------------------------------------------------------------------
  const pending = { text: false, numbers: false, tree: false };
  const last = { text: 0, numbers: 0, tree: 0 };
  const cost = { text: 0, numbers: 0, tree: 0 };
  let framing = false;

  function redraw(...names) {
    (names.length ? names : Object.keys(pending)).forEach((name) => (pending[name] = true));
    if (!framing) {
      framing = true;
      requestAnimationFrame(frame);
    }
  }

  // A part waits for its turn while the answer is being written, and longer where drawing it is slow
  function wait(name) {
    const unhurried = (live() && state.follow) || state.playing;
    if (!unhurried) return 0;
    return Math.max(name === "tree" && (state.everyStep || state.playing) ? EVERY.text : EVERY[name], 4 * cost[name]);
  }

  function frame(now) {
    framing = false;
    if (!parts) return;
    for (const name of Object.keys(pending)) {
      if (!pending[name] || now - last[name] < wait(name)) continue;
      pending[name] = false;
      last[name] = now;
      const start = performance.now();
      DRAW[name]();
      cost[name] = performance.now() - start;
    }
    if (Object.values(pending).some(Boolean)) redraw(...Object.keys(pending).filter((name) => pending[name]));
  }

  const DRAW = {
    text() {
      const main = lane();
      const steps = stepsShown();
      parts.root.dataset.tab = state.tab;
      parts.root.dataset.run = state.run ? state.run.id : "";
      parts.root.dataset.finished = String(Boolean(state.run && state.run.finished));
      parts.badge.textContent = Jakiro.badgeOf(state.run);
      parts.badge.hidden = !parts.badge.textContent;
      if (state.tab === "watch") drawAnswer(main, steps);
      drawPlot(steps);
      parts.race.draw(state, raceTime());
      parts.scrubber.draw(main, { index: state.index, live: live(), follow: state.follow, playing: state.playing });
    },
    numbers() {
      const limited = state.time !== null || (state.guess && state.phase < 3) ? stepsShown() : undefined;
      parts.strip.draw(state.run, limited);
      if (state.tab === "race") parts.race.drawResult(state.run);
      speak();
    },
    tree: drawTree,
  };

  function drawAnswer(main, steps) {
    const waiting = state.run && state.run.waiting;
    parts.empty.hidden = Boolean(main) && !waiting;
    parts.empty.textContent = waiting || say("empty_answer");
    parts.answerText.hidden = !main || state.markdown;
    parts.markdown.hidden = !main || !state.markdown;
    parts.question.textContent = state.run && main ? state.run.question : "";
    if (!main) {
      parts.legend.draw([]);
      return;
    }
    const count = steps ? main.countAfter(steps - 1) : 1;
    const everything = steps === main.steps.length;
    const growing = !everything || !main.endReason;
    const folded = parts.answer.foldedBefore(count);
    if (state.markdown) {
      Jakiro.drawMarkdown(parts.markdown, Jakiro.textOf(main, count, folded), folded && parts.answer.unfoldButton(folded));
    } else parts.answer.draw(main, count, { live: growing, selected: state.index, tail: everything ? tail(main) : "" });
    parts.legend.draw(main.steps.slice(0, steps));
    if ((live() && state.follow) || state.playing) parts.answerScroll.scrollTop = parts.answerScroll.scrollHeight;
    else bringIntoView(parts.answerScroll, parts.answerText.querySelector(".selected"));
  }

  // Scrolls a box, and nothing around it, until one of its elements is visible
  let broughtTo = null;
  function bringIntoView(box, element) {
    const wanted = element && `${state.run.id}/${state.index}`;
    if (!element || wanted === broughtTo) return;
    broughtTo = wanted;
    const frame = box.getBoundingClientRect();
    const spot = element.getBoundingClientRect();
    if (spot.top < frame.top + 8 || spot.bottom > frame.bottom - 8) {
      box.scrollTop += spot.top - frame.top - frame.height / 2;
    }
  }

  function tail(main) {
    const n = main.tokens.length;
    if (main.endReason === "stopped") return say("stopped", { n });
    if (main.endReason === "length") return say("length_reached", { n });
    return main.endReason === "context" ? say("context_reached", { n }) : "";
  }

  function drawPlot(steps) {
    const main = lane();
    const plots = { watch: parts.plot, race: parts.racePlot };
    const plot = plots[state.tab];
    if (!plot) return;
    const marked = main && main.steps.length && !(live() && state.follow);
    const hidden = state.guess && state.phase < 3;
    plot.draw(state.run, {
      mode: state.plotMode, bracket: state.tab === "race",
      time: state.time !== null ? state.time : hidden && main ? main.seconds[steps - 1] || 0 : null,
      playhead: marked ? state.time ?? main.seconds[state.index] : null,
    });
  }

  function drawTree() {
    const main = lane();
    const ready = Boolean(main && main.steps[state.index]);
    parts.treeEmpty.hidden = ready;
    parts.panels.hidden = !ready;
    parts.treeHost.hidden = !ready || state.list;
    parts.listHost.hidden = !ready || !state.list;
    parts.phases.forEach((button, i) => button.setAttribute("aria-pressed", String(state.phase === i + 1)));
    parts.guess.setAttribute("aria-pressed", String(state.guess));
    parts.guess.textContent = say(state.guess && state.phase < 3 ? "reveal" : "guess_first");
    if (!ready || state.tab !== "watch") {
      parts.treeLine.textContent = "";
      return;
    }
    const step = main.steps[state.index];
    const levels = step.nodes.reduce((most, node) => Math.max(most, node.depth), 0);
    const values = { candidates: counted("candidate", step.nodes.length - 1), levels: counted("level", levels),
      kept: step.accepted_path.length };
    const drafted = step.nodes.length > 1;
    parts.treeLine.textContent = drafted ? say(state.phase === 1 ? "tree_line_hidden" : "tree_line", values) : say("no_draft");
    parts.card.about(main, state.index, state.phase);
    if (state.list) parts.listHost.replaceChildren(Jakiro.treeList(main, state.index, state.phase));
    else {
      parts.tree.draw({ lane: main, index: state.index, phase: state.phase, choices: state.choices, showAll: state.showAll,
        sentence: Jakiro.stepSentence(main, state.index, state.phase) });
    }
    parts.mask.draw(main, state.index);
    Jakiro.drawRouter(parts.router, main, state.index);
    Jakiro.drawBudget(parts.budget, main, state.index);
  }

  // One polite voice: at the start, every ten seconds, and at the end
  let spoken = { run: null, at: 0, end: false };
  function speak() {
    const main = lane();
    if (!main || state.run.source !== "live") return;
    const now = performance.now();
    if (spoken.run !== state.run.id) {
      spoken = { run: state.run.id, at: now, end: false };
      parts.voice.textContent = say("spoken_start");
    } else if (!spoken.end && (state.run.finished || now - spoken.at > 10000)) {
      const value = metrics.speedup(main, state.run.plain);
      const speedup = value === null ? "" : say("spoken_speedup", { speedup: value.toFixed(1) });
      parts.voice.textContent = say(state.run.finished ? "spoken_end" : "spoken_progress", { tokens: main.tokens.length, speedup });
      spoken = { run: state.run.id, at: now, end: state.run.finished };
    }
  }

  // ---- moving through steps ----------------------------------------------------------------------------------
  // The race time on screen: while both run it is the clock of the lane that is behind
  function raceTime() {
    if (!state.run) return 0;
    if (state.time !== null) return state.time;
    const lanes = Object.values(state.run.lanes);
    const running = lanes.filter((one) => !one.endReason);
    if (state.follow && live() && running.length) return Math.min(...running.map((one) => one.clock));
    const main = lane();
    if (live() && main && main.steps.length) return main.seconds[state.index];
    return Infinity;
  }

  function seek(index) {
    const main = lane();
    if (!main || !main.steps.length) return;
    state.index = Math.max(0, Math.min(main.steps.length - 1, index));
    state.follow = live() && !state.guess && state.index === main.steps.length - 1;
    state.playing = false;
    state.time = null;
    if (state.guess) state.phase = 1;
    redraw();
  }

  function follow() {
    state.guess = false;
    state.phase = 3;
    seek(Infinity);
  }

  function setPhase(phase) {
    state.phase = phase;
    redraw();
  }

  function guessFirst(on) {
    state.guess = on;
    state.phase = on ? 1 : 3;
    state.follow = !on && live() && state.follow;
    state.playing = false;
    state.time = null;
    redraw();
  }

  // Space: reveal or go on while guessing, else play and pause
  function advance() {
    if (!state.guess) play();
    else if (state.phase < 3) setPhase(3);
    else seek(state.index + 1);
  }

  let playedAt = 0;
  function play(fromStart) {
    const run = state.run;
    if (!run || !lane() || !lane().steps.length) return;
    if (live()) {
      if (state.follow) seek(state.index - 1);
      else follow();
      return;
    }
    if (state.playing) {
      state.playing = false;
      redraw();
      return;
    }
    const end = Math.max(...Object.values(run.lanes).map((one) => one.clock));
    if (state.pace === "step") {
      seek(state.index + 1);
      return;
    }
    const atEnd = state.time === null || state.time >= end;
    state.time = fromStart || (atEnd && state.index >= lane().steps.length - 1) ? 0
      : state.time ?? lane().seconds[state.index];
    state.guess = false;
    state.phase = 3;
    state.playing = true;
    playedAt = performance.now();
    requestAnimationFrame(tick);
  }

  function tick(now) {
    if (!state.playing) return;
    const main = lane();
    const end = Math.max(...Object.values(state.run.lanes).map((one) => one.clock));
    state.time = Math.min(end, state.time + ((now - playedAt) / 1000) * Number(state.pace));
    playedAt = now;
    const index = Math.max(0, main.stepsAt(state.time) - 1);
    const moved = index !== state.index;
    state.index = index;
    if (state.time >= end) {
      state.playing = false;
      state.time = null;
      if (state.run.rest !== undefined) state.index = state.run.rest;
      redraw();
      return;
    }
    redraw("text", "numbers", ...(moved ? ["tree"] : []));
    requestAnimationFrame(tick);
  }

  // ---- runs --------------------------------------------------------------------------------------------------
  function show(run, index) {
    Object.assign(state, { run, playing: false, time: null, follow: !run || !run.finished, index: index ?? 0, phase: 3,
      guess: state.guess && Boolean(run && !run.finished) });
    if (state.guess) state.phase = 1;
    Jakiro.drawTurns(parts.turns, state);
    Jakiro.markSettings(run);
    redraw();
  }

  // A live update from the server: a new run begins, or the one on screen grows
  function receive(value) {
    if (!value || !value.run) return;
    if (value.ticks) grow(value);
    if (value.error) Jakiro.notify("error", value.error);
  }

  function grow(value) {
    let run = state.turns.find((turn) => turn.id === value.run);
    if (!run) {
      if (state.seen.has(value.run)) return;
      state.seen.add(value.run);
      run = new Run(value.run, "live");
      run.ticks = 0;
      run.before = state.run;
      run.form = Jakiro.formAsked();
      state.turns.push(run);
      Jakiro.notify(null);
      if (state.tab === "recordings") state.tab = "watch";
      show(run);
    }
    run.heard = performance.now();
    const numbers = Object.keys(value.ticks).map(Number).sort((a, b) => a - b);
    for (const number of numbers) {
      if (number < run.ticks) continue;
      JSON.parse(value.ticks[number]).forEach((event) => run.take(event));
      run.ticks = number + 1;
    }
    const nothingCame = run.finished && !run.main;
    if (nothingCame) state.turns.splice(state.turns.indexOf(run), 1);
    if (run !== state.run) return;
    if (nothingCame) {
      show(run.before);
      return;
    }
    if (state.follow && run.main) state.index = Math.max(0, run.main.steps.length - 1);
    if (run.finished) {
      run.before = null;
      state.follow = false;
      Jakiro.drawTurns(parts.turns, state);
    }
    redraw();
  }

  function clear() {
    state.turns = [];
    Jakiro.notify(null);
    show(null);
  }

  function setTab(tab) {
    state.tab = tab;
    if (parts) parts.root.dataset.tab = tab;
    document.body.dataset.jakiroTab = tab;
    if (parts && tab === "recordings") parts.recordings.draw();
    redraw();
  }

  // The step a recording rests on: the longest accepted path that holds both experts
  function highlight(main) {
    const worth = (step) => {
      const kinds = new Set(step.accepted_path.map((i) => step.nodes[i].proposer));
      return step.accepted_path.length + (kinds.has("expert_0") && kinds.has("expert_1") ? 100 : 0);
    };
    return main.steps.reduce((best, step, i) => (worth(step) > worth(main.steps[best]) ? i : best), 0);
  }

  function showRecording(id, recording, { playNow, source = "recording", step } = {}) {
    const run = runFromTraces(id, source, recording.traces, recording.title);
    run.rest = run.main.steps.length ? highlight(run.main) : 0;
    const quiet = Jakiro.reducedMotion() || !playNow;
    show(run, step ?? (quiet ? run.rest : 0));
    if (!quiet) setTimeout(() => state.run === run && !state.playing && play(true), FIRST_PLAY_MS);
    return run;
  }

  function mountView(element, props, watch, server) {
    parts = Jakiro.buildParts(element.querySelector(".jk-view"), state, { seek, follow, play, setPhase, guessFirst, redraw,
      setTab, showRecording, askAgain: () => Jakiro.askAgain(state), edit: () => Jakiro.edit(state, parts.turns), show, server });
    document.body.dataset.jakiroTab = state.tab;
    new ResizeObserver(() => redraw()).observe(parts.root);
    new MutationObserver(() => redraw()).observe(document.body, { attributeFilter: ["class"] });
    if (watch) watch("value", () => receive(props.value));
    if (server) {
      parts.recordings.first();
      Jakiro.watchConnection(() => state.turns.find((run) => !run.finished) || null);
    }
    redraw();
    return parts;
  }

  Object.assign(Jakiro, { mountView, receive, redraw, clear, setTab, showRecording, advance,
    moves: { seek, follow, play, setPhase, guessFirst, advance, state } });
})();
