// Asking: what is sent with a question, what it takes the place of, and how a question comes back that was not answered.
(() => {
  const { say } = Jakiro;

  let override = null; // question and settings in place of the form's
  let asked = null; // what was sent last, by the form's names
  let typed = ""; // what the box held then

  const questionBox = () => document.querySelector("#question textarea, #question input");

  function fill(box, text) {
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // What is sent in place of the form's values: the question, the settings, the conversation so far. The box is emptied
  function beforeAsk(names, values) {
    Jakiro.notify(null);
    const { state } = Jakiro.moves;
    state.armed = false;
    if (Jakiro.inProjector()) document.activeElement.blur(); // the clicker goes on
    const { question, history, ...settings } = Object.fromEntries(names.map((name, i) => [name, values[i]]));
    const sent = { question, ...settings, ...override, history: Jakiro.conversation(state) };
    typed = override && override.question ? "" : question;
    if (typed && questionBox()) fill(questionBox(), "");
    override = null;
    asked = sent;
    Jakiro.lookAfterAsking();
    return names.map((name) => sent[name]);
  }

  // A question that brought no answer stands in the box again
  function giveBack() {
    const box = questionBox();
    if (!typed) Jakiro.screen.state.from = null;
    else if (box && !box.value) fill(box, typed);
    typed = "";
  }

  // Asks in place of a turn and of those after it; the old ones come back if no answer begins
  function askInstead(run, changes) {
    Jakiro.screen.state.from = run;
    override = { question: run.question, ...changes };
    document.querySelector("#ask").click();
  }

  const askAgain = (run) => askInstead(run, { seed: run.main.header.sampling.seed + 1 });
  // The same text to twice the length: what is drawn at a position does not depend on where the answer ends
  const goOn = (run) => askInstead(run, { ...run.form, history: undefined, question: run.question, length: 2 * run.main.header.sampling.max_new_tokens });
  // The same question and seed once more with a large tree, which shows more and takes longer
  const bigTree = (state) => askInstead(state.run, { tree: say("fixed"), candidates: 40, levels: 6 });

  function edit(run) {
    Jakiro.screen.state.from = run;
    const box = questionBox();
    fill(box, run.question);
    box.focus();
    Jakiro.drawChat(Jakiro.screen.parts, Jakiro.screen.state);
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

  Object.assign(Jakiro, { questionBox, fill, beforeAsk, giveBack, askAgain, goOn, bigTree, edit, armQuestion, askArmed, formAsked: () => asked });
})();
