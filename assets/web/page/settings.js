// The form around the view: what is sent with a question, and which settings differ from the answer on screen.
(() => {
  const { say } = Jakiro;

  let override = null; // question and seed in place of the form's
  let asked = null; // the settings that were sent last, by name
  let current = null; // the settings as they stand in the form, by name

  const questionBox = () => document.querySelector("#question textarea, #question input");
  const byName = (names, values) => Object.fromEntries(names.map((name, i) => [name, values[i]]));

  // What is sent in place of the form's values: the question, the settings, the conversation so far
  function beforeAsk(names, values) {
    Jakiro.notify(null);
    Jakiro.moves.state.armed = false;
    if (document.documentElement.classList.contains("projector")) document.activeElement.blur(); // the clicker goes on
    const { question, history, ...settings } = byName(names, values);
    current = current || settings;
    const sent = { question, ...settings, ...override, history: Jakiro.conversation(Jakiro.moves.state) };
    override = null;
    asked = sent;
    Jakiro.lookAfterAsking();
    return names.map((name) => sent[name]);
  }

  // A question waits in the box for the next key, so that a clicker alone can ask it
  function armQuestion() {
    const box = questionBox();
    if (!box.value.trim()) fill(box, document.querySelector("#example-0").textContent.trim());
    Jakiro.moves.state.armed = true;
    Jakiro.setTab("race");
  }

  function askArmed() {
    Jakiro.moves.state.armed = false;
    document.querySelector("#ask").click();
  }

  function fill(box, text) {
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // The same question again with the next seed, in place of the last answer
  function askAgain(state) {
    const run = state.turns[state.turns.length - 1];
    if (!run || !run.main) return;
    state.replaced = state.turns.pop();
    override = { question: run.question, seed: run.main.header.sampling.seed + 1 };
    document.querySelector("#ask").click();
  }

  // The same question and seed once more with a large tree, which shows more and takes longer
  function bigTree(state) {
    const { run } = state;
    const again = state.turns[state.turns.length - 1] === run;
    if (again) state.replaced = state.turns.pop();
    override = { question: run.question, tree: say("fixed"), candidates: 40, levels: 6 };
    document.querySelector("#ask").click();
  }

  const SMALL = 12; // candidates of a mean step

  // Whether a finished answer drew small trees because larger ones do not pay here
  const drewSmallTrees = (run) => Boolean(run && run.source === "live" && run.finished && run.main && run.main.steps.length
    && run.main.header.tree.policy === "auto" && !run.main.isPlain && String(run.main.header.device).startsWith("cpu")
    && run.main.steps.reduce((sum, step) => sum + step.nodes.length - 1, 0) < SMALL * run.main.steps.length);

  function edit(state) {
    const run = state.turns[state.turns.length - 1];
    const box = questionBox();
    if (!run || !box) return;
    state.replaced = state.turns.pop();
    fill(box, run.question);
    box.focus();
    Jakiro.drawChat(Jakiro.screen.parts, state);
  }

  function settingsChanged(names, values) {
    current = byName(names, values);
    markSettings(Jakiro.moves.state.run);
    if (Jakiro.chip && Jakiro.chip.value) Jakiro.chip.draw(Jakiro.chip.value);
  }

  // Marks settings that differ from those of the answer on screen; sizes count only where the tree is fixed
  function markSettings(run) {
    for (const [name, value] of Object.entries(current || {})) {
      const idle = current.tree === say("automatic") && (name === "candidates" || name === "levels");
      const differs = Boolean(run && run.form && !idle && JSON.stringify(run.form[name]) !== JSON.stringify(value));
      const field = document.getElementById(name);
      if (field && differs) field.dataset.next = say("next_answer");
      else if (field) delete field.dataset.next;
    }
  }

  let chosen = false; // whether somebody, or a link, chose numerics

  // The form opens with the numerics that the model was loaded with, which are those that suit its device
  function openWithNumerics(name) {
    const field = document.querySelector(`#numerics input[value="${name}"]`);
    if (!field) return;
    if (Jakiro.formDefaults()) Jakiro.formDefaults().numerics = name;
    if (chosen) return;
    chosen = true;
    if (!field.checked) field.click();
  }

  document.addEventListener("change", (event) => {
    chosen = chosen || (event.isTrusted && Boolean(event.target.closest("#numerics")));
  }, true);
  const numericsChosen = () => { chosen = true; };

  const asksFast = () => Boolean(current && current.numerics === say("fast"));

  Object.assign(Jakiro, { questionBox, beforeAsk, askAgain, edit, bigTree, drewSmallTrees, armQuestion, askArmed, settingsChanged, markSettings, asksFast, openWithNumerics, numericsChosen, formAsked: () => asked, formNow: () => current });
})();
