// Notices when the server can no longer be reached while an answer is being written; what is on screen stays.
(() => {
  const { say } = Jakiro;

  const SILENT_MS = 4000;
  const LOOK_MS = 2000;

  function lose(run) {
    const { main } = run;
    const { state } = Jakiro.screen;
    if (state.waiting === run) {
      state.waiting = null;
      state.turns.splice(state.turns.indexOf(run), 1);
    }
    Object.values(run.lanes).forEach((lane) => (lane.endReason = lane.endReason || "stopped"));
    run.finished = true;
    run.waiting = null;
    Jakiro.notify("error", say("connection_lost", { n: main ? main.tokens.length : 0 }));
    Jakiro.redraw();
  }

  // `writing()` gives the run that still grows, or null; its `heard` is when its last update came
  function watchConnection(writing) {
    setInterval(async () => {
      const run = writing();
      if (!run || performance.now() - run.heard < SILENT_MS) return;
      try {
        await fetch(new URL("manifest.json", location.href), { cache: "no-store" });
      } catch {
        if (writing() === run) lose(run);
      }
    }, LOOK_MS);
  }

  Object.assign(Jakiro, { watchConnection });
})();
