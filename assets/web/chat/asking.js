// Asking: what is sent with a question, what it takes the place of, and how a question comes back that was not answered.

import { say } from "../base/dom.js";
import { toHex } from "../base/pieces.js";
import { notify } from "../base/server.js";
import { fill, questionBox } from "./box.js";
import { textOf } from "../data/history.js";
import { chip, offline, refuseOffline } from "../page/chip.js";
import { byName, formReady } from "../page/form.js";
import {
  begin,
  endWriting,
  inProjector,
  lose,
  redraw,
  screen,
  setTab,
  state,
} from "../page/machine.js";

// Turns that go along with the next question: those before the one that it takes the place of
export function sentTurns({ turns, from }) {
  const at = from ? turns.indexOf(from) : -1;
  return turns.slice(0, at < 0 ? undefined : at).filter((run) => run.main && run.finished);
}

export const conversation = (state) =>
  sentTurns(state).flatMap((run) => [
    { role: "user", content: run.question },
    { role: "assistant", content: textOf(run.main, run.main.tokens.length) },
  ]);

let instead = null; // what is asked in place of what the box holds: {from: the turn whose place it takes, changes to the form, joins}

// Known to this page alone, which comes back with it to its answer
const newId = () => toHex(crypto.getRandomValues(new Uint8Array(16)));

// What is sent: the form with `changes`, the conversation before the turn `from`, and the new answer's id
function send(names, values, from, changes, joins) {
  notify(null);
  state.armed = false;
  if (inProjector()) document.activeElement.blur(); // the clicker goes on
  endWriting();
  const { question, history, ...settings } = byName(names, values);
  const id = newId();
  // A link may hold the beginning of its question's answer
  const linked = !changes && state.linked?.question === question ? state.linked.prefix : null;
  const asked = { question, ...settings, "answer-prefix": linked, ...changes };
  state.linked = null;
  const sent = { ...asked, history: conversation({ turns: state.turns, from }), "run-id": id };
  const typed = changes ? "" : question;
  if (typed && questionBox()) fill(questionBox(), "");
  lookAfter(begin(id, { from, typed, form: asked, joins }));
  return names.map((name) => sent[name]);
}

export const beforeAsk = (names, values) => send(names, values, state.from, null);
export const beforeAskInstead = (names, values) =>
  send(names, values, instead.from, instead.changes, instead.joins);

// Asks in place of a turn and of those after it; the old ones come back if no answer begins
function askInstead(run, changes, joins) {
  if (refuseOffline()) return;
  instead = { from: run, changes: { question: run?.question, ...changes }, joins };
  screen.form.askInstead();
}

// An offered question is asked when it is pressed
document.addEventListener("click", ({ target }) => {
  const chip = target.closest?.(".jk-chip");
  if (chip) askInstead(state.from, { question: chip.textContent.trim() });
});

// At temperature 0 the same text would come again
export const OTHER_TEMPERATURE = 0.8;
export const isFixed = (run) => run.main.header.sampling.temperature === 0;
export const askAgain = (run) =>
  askInstead(run, {
    seed: run.main.header.sampling.seed + 1,
    ...(isFixed(run) ? { temperature: OTHER_TEMPERATURE } : {}),
  });
// The same text to twice the length: what is drawn at a position does not depend on where the answer ends
export const goOn = (run) =>
  askInstead(
    run,
    { ...run.form, question: run.question, length: 2 * run.main.header.sampling.max_new_tokens },
    "within",
  );
// The same answer up to a place, a token there that somebody chose, and what the model writes after it
export function goOnFrom(run, index, id) {
  const { tokens, header } = run.main;
  const places = (header.forced || []).map(([place]) => place).filter((place) => place < index);
  const prefix = [
    [...tokens.slice(0, index).map((token) => token.id), id],
    [...places, index],
  ];
  askInstead(run, { ...run.form, question: run.question, "answer-prefix": prefix }, "beside");
}
// The same question and seed once more with a large tree, which shows more and takes longer
export const bigTree = () =>
  askInstead(state.run, { tree: say("fixed"), candidates: 40, levels: 6 });

export function edit(run) {
  state.from = run;
  const box = questionBox();
  fill(box, run.question);
  box.focus();
  redraw();
}

// A question waits in the box for the next key, so that a clicker alone can ask it
export function armQuestion() {
  const box = questionBox();
  if (!box.value.trim()) fill(box, document.querySelector("#example-0").textContent.trim());
  state.armed = true;
  setTab("race");
}

// A question was sent: whether the server is there to answer it
async function lookAfter(run) {
  await chip.look();
  if (!offline() || run.finished || run.main) return;
  lose(run, "offline_kept");
  chip.look();
}

let returning = null; // the turn that the page goes on reading

// Reads on where this page had put an answer aside
export function takeUp(run) {
  returning = run;
  screen.form.resume();
}

// Goes on with an answer, where the server still has it, in place of what is known of it
export function resume(id, about) {
  returning = begin(id, about);
  if (questionBox() && questionBox().value === about.typed) fill(questionBox(), "");
  formReady.then(() => screen.form.resume());
}

export const resumed = () => [returning.id];
