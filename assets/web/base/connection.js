// Notices when the server has gone, or is another one, while an answer is being written; what is on screen stays.
(() => {
  const { say, memory } = Jakiro;

  const SILENT_MS = 4000;
  const LOOK_MS = 2000;
  const STORED = "jakiro-lost";
  let lost = null;

  function lose(run, sentence) {
    const { main } = run;
    const { state } = Jakiro.screen;
    if (state.waiting === run) {
      state.waiting = null;
      state.turns.splice(state.turns.indexOf(run), 1);
    }
    lost = run;
    Object.values(run.lanes).forEach((lane) => (lane.endReason = lane.endReason || "stopped"));
    run.finished = true;
    run.waiting = null;
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

  // The box may be built after the view and emptied once more, so the question is put back until it stays
  function fillIn(question) {
    let stayed = 0;
    const timer = setInterval(() => {
      const box = document.querySelector("#question textarea, #question input");
      if (!box) return;
      stayed = box.value === question ? stayed + 1 : 0;
      if (stayed === 2) clearInterval(timer);
      if (stayed) return;
      box.value = question;
      box.dispatchEvent(new Event("input", { bubbles: true }));
    }, 250);
  }

  // Gradio reloads the page when a server that was gone is back: the answer is lost, the question is not
  function tellWhatWasLost() {
    const stored = memory.get(STORED);
    memory.set(STORED, "");
    if (!stored) return;
    const { question, n } = JSON.parse(stored);
    if (question) fillIn(question);
    Jakiro.notify("error", say("loaded_anew", { n }));
  }

  // `writing()` gives the run that still grows, or null; its `heard` is when its last update came
  async function watchConnection(writing) {
    tellWhatWasLost();
    window.addEventListener("pagehide", () => {
      const run = writing() || lost;
      if (!run) return;
      const values = { question: run.question, n: run.main ? run.main.tokens.length : 0 };
      memory.set(STORED, JSON.stringify(values));
    });
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

  Object.assign(Jakiro, { watchConnection });
})();
