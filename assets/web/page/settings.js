// The form around the view: what is sent with a question, and which settings differ from the answer on screen.
(() => {
  const { say } = Jakiro;

  const SEED = 4; // where the question's seed stands among the values sent
  let override = null;
  let asked = null;
  let names = [];
  let current = null;

  function conversation(state) {
    return state.turns.filter((run) => run.main && run.finished).flatMap((run) => [
      { role: "user", content: run.question },
      { role: "assistant", content: Jakiro.textOf(run.main, run.main.tokens.length) },
    ]);
  }

  // Called with the form's values before they are sent: the question, the settings, the conversation so far
  function beforeAsk(values) {
    Jakiro.notify(null);
    const sent = [...values];
    current = current || sent.slice(1, -1);
    sent[sent.length - 1] = conversation(Jakiro.moves.state);
    if (override) {
      sent[0] = override.question;
      sent[SEED] = override.seed;
      override = null;
    }
    asked = sent.slice(1, -1);
    return sent;
  }

  // The same question again with the next seed, in place of the last answer
  function askAgain(state) {
    const run = state.turns[state.turns.length - 1];
    if (!run || !run.main) return;
    state.replaced = state.turns.pop();
    override = { question: run.question, seed: run.main.header.sampling.seed + 1 };
    document.querySelector("#ask").click();
  }

  function edit(state, turnsHost) {
    const run = state.turns[state.turns.length - 1];
    const box = document.querySelector("#question textarea, #question input");
    if (!run || !box) return;
    state.replaced = state.turns.pop();
    box.value = run.question;
    box.dispatchEvent(new Event("input", { bubbles: true }));
    box.focus();
    Jakiro.drawTurns(turnsHost, state);
  }

  function settingsChanged(order, values) {
    names = order;
    current = values;
    markSettings(Jakiro.moves.state.run);
    if (Jakiro.chip && Jakiro.chip.value) Jakiro.chip.draw(Jakiro.chip.value);
  }

  // Settings that are no longer those of the answer on screen say so; sizes count only where the tree is fixed
  function markSettings(run) {
    const automatic = current && current[names.indexOf("tree")] === say("automatic");
    names.forEach((name, i) => {
      const idle = automatic && (name === "candidates" || name === "levels");
      const differs = Boolean(run && run.form && !idle && run.form[i] !== current[i]);
      const field = document.getElementById(name);
      if (field && differs) field.dataset.next = say("next_answer");
      else if (field) delete field.dataset.next;
    });
  }

  const asksFast = () => Boolean(current && current[names.indexOf("numerics")] === say("fast"));

  Object.assign(Jakiro, { beforeAsk, askAgain, edit, settingsChanged, markSettings, asksFast, formAsked: () => asked });
})();
