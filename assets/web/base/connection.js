// Notices when the server has gone, or is another one, while an answer is being written; what is on screen stays.
(() => {
  const { say } = Jakiro;

  const SILENT_MS = 4000;
  const LOOK_MS = 2000;

  function lose(run, sentence) {
    const { main } = run;
    const { state } = Jakiro.screen;
    if (state.waiting === run) {
      state.waiting = null;
      state.turns.splice(state.turns.indexOf(run), 1);
    }
    state.lost = run;
    run.stop();
    Jakiro.giveBack();
    Jakiro.notify("error", say(sentence, { n: main ? main.tokens.length : 0 }));
    Jakiro.redraw();
  }

  // The name of the server's present start; null when it cannot be reached
  async function startOf() {
    try {
      const answer = await fetch(new URL("status", location.href), { cache: "no-store" });
      return (await answer.json()).start;
    } catch {
      return null;
    }
  }

  // `writing()` gives the run that still grows, or null; its `heard` is when its last update came
  async function watchConnection(writing) {
    let known = await startOf();
    setInterval(async () => {
      const run = writing();
      if (!run || performance.now() - run.heard < SILENT_MS) return;
      const now = await startOf();
      if (now === known || writing() !== run) return;
      lose(run, now === null ? "connection_lost" : "server_restarted");
      known = now || known;
    }, LOOK_MS);
  }

  const offline = () => !navigator.onLine || (Jakiro.chip && Jakiro.chip.lost);

  // A question that cannot be sent stays in its box, and the page says so before anything is sent
  function guardAsking() {
    const refuse = (event) => {
      const asks = event.type === "click" ? event.target.closest?.("#ask")
        : event.key === "Enter" && !event.shiftKey && event.target.closest?.("#question");
      if (!asks || !offline()) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      Jakiro.notify("error", say("offline_kept"));
      Jakiro.chip.look();
    };
    addEventListener("click", refuse, true);
    addEventListener("keydown", refuse, true);
    addEventListener("offline", () => Jakiro.chip.look());
    addEventListener("online", () => Jakiro.chip.look());
  }

  // A question was sent: whether the server is there to answer it
  async function lookAfterAsking() {
    await Jakiro.chip.look();
    if (!offline()) return;
    Jakiro.notify("error", say("offline_kept"));
    Jakiro.giveBack();
  }

  Object.assign(Jakiro, { watchConnection, guardAsking, lookAfterAsking });
})();
