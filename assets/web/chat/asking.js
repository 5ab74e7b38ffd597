// Asking: what is sent with a question, what it takes the place of, and how a question comes back that was not answered.
(() => {
  const { say } = Jakiro;

  let instead = null; // what the button #ask-instead asks: {from: the turn whose place it takes, changes to the form}

  const questionBox = () => document.querySelector("#question textarea, #question input");

  function fill(box, text) {
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // Known to this page alone, which comes back with it to its answer
  const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

  // What is sent: the form with `changes`, the conversation before the turn `from`, and the new answer's id
  function send(names, values, from, changes) {
    const { state } = Jakiro.moves;
    Jakiro.notify(null);
    state.armed = false;
    if (Jakiro.inProjector()) document.activeElement.blur(); // the clicker goes on
    Jakiro.endWriting();
    const { question, history, ...settings } = Object.fromEntries(names.map((name, i) => [name, values[i]]));
    const id = newId();
    const asked = { question, ...settings, ...changes };
    const sent = { ...asked, history: Jakiro.conversation({ turns: state.turns, from }), "run-id": id };
    const typed = changes ? "" : question;
    if (typed && questionBox()) fill(questionBox(), "");
    Jakiro.lookAfterAsking(Jakiro.begin(id, { from, typed, form: asked }));
    return names.map((name) => sent[name]);
  }

  const beforeAsk = (names, values) => send(names, values, Jakiro.moves.state.from, null);
  const beforeAskInstead = (names, values) => send(names, values, instead.from, instead.changes);

  // A question that brought no answer stands in the box again, unless another one is there
  function giveBack(run) {
    const box = questionBox();
    if (run.typed && box && !box.value) fill(box, run.typed);
    run.typed = "";
  }

  // Asks in place of a turn and of those after it; the old ones come back if no answer begins
  function askInstead(run, changes) {
    if (Jakiro.refuseOffline()) return;
    instead = { from: run, changes: { question: run.question, ...changes } };
    document.querySelector("#ask-instead").click();
  }

  const askAgain = (run) => askInstead(run, { seed: run.main.header.sampling.seed + 1 });
  // The same text to twice the length: what is drawn at a position does not depend on where the answer ends
  const goOn = (run) => askInstead(run, { ...run.form, question: run.question, length: 2 * run.main.header.sampling.max_new_tokens });
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

  let returning = null; // the turn that the page goes on reading

  // Goes on with an answer, where the server still has it, in place of what is known of it
  function resume(id, about) {
    returning = Jakiro.begin(id, about);
    if (questionBox() && questionBox().value === about.typed) fill(questionBox(), "");
    // The button is there once Gradio has drawn the form
    const click = () => (document.querySelector("#resume") ? document.querySelector("#resume").click() : requestAnimationFrame(click));
    click();
  }

  Object.assign(Jakiro, { resume, resumed: () => [returning.id], questionBox, fill, beforeAsk, beforeAskInstead, giveBack, askAgain, goOn, bigTree, edit, armQuestion, askArmed });
})();
