// What a visit keeps when the page is loaded anew: the chat's answers, the question in the box, and the settings.
(() => {
  const { say, counted, memory, runFromTraces, traceOf } = Jakiro;

  const CHAT = "jakiro-chat";
  const FORM = "jakiro-form";
  let defaults = null; // what the form holds on a first visit, by name

  const packed = (run) => ({ id: run.id, form: run.form,
    traces: Object.fromEntries(Object.entries(run.lanes).map(([name, lane]) => [name, traceOf(lane)])) });

  // Keeps the newest answers that the browser has room for, and the number of the older ones that are lost
  function keepChat(turns, writing) {
    const told = writing && { n: writing.main ? writing.main.tokens.length : 0 };
    const kept = turns.filter((run) => run.main);
    for (let left = 0; left <= kept.length; left += 1) {
      const text = JSON.stringify({ runs: kept.slice(left).map(packed), left, writing: told });
      if (memory.set(CHAT, text)) return;
    }
  }

  function keep() {
    const { state } = Jakiro.screen;
    const writing = state.turns.find((run) => !run.finished) || state.lost;
    const box = Jakiro.questionBox();
    const question = (box && box.value) || (writing && writing.question) || "";
    keepChat(state.turns, writing);
    memory.set(FORM, JSON.stringify({ ...Jakiro.formNow(), question }));
  }

  // One sentence on what loading the page again has lost; empty where nothing is lost
  function costs({ left, writing }, kept) {
    const lost = left ? say("visit_lost", { turns: counted("earlier_turn", left) }) : "";
    if (!writing) return lost;
    const told = say(kept ? "visit_cut" : "visit_cut_lost", { n: writing.n });
    return `${told} ${lost}`.trim();
  }

  // Puts the chat back as it was; what does not read as a chat is dropped
  function restore(show) {
    const { state } = Jakiro.screen;
    try {
      const kept = JSON.parse(memory.get(CHAT) || "null");
      if (!kept) return;
      state.turns = kept.runs.map(({ id, form, traces }) => Object.assign(runFromTraces(id, "live", traces), { form }));
      state.turns.forEach((run) => state.seen.add(run.id));
      const last = state.turns[state.turns.length - 1];
      if (last) show(last, Infinity);
      const sentence = costs(kept, Boolean(last));
      if (sentence) Jakiro.notify("error", sentence);
    } catch {
      state.turns = [];
    } finally {
      memory.set(CHAT, "");
    }
  }

  // The form's values of before, by the same names; its own where nothing was kept
  function keptForm(names, values) {
    let kept = {};
    defaults = Object.fromEntries(names.map((name, i) => [name, values[i]]));
    try {
      kept = JSON.parse(memory.get(FORM) || "{}");
    } catch {
      kept = {};
    }
    Jakiro.fieldsChosen(Object.keys(kept));
    return names.map((name, i) => (typeof kept[name] === typeof values[i] ? kept[name] : values[i]));
  }

  addEventListener("pagehide", () => Jakiro.screen.parts && Jakiro.screen.parts.live && keep());

  Object.assign(Jakiro, { restore, keptForm, formDefaults: () => defaults });
})();
