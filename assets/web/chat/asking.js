// Questions: their data, the place of the answer in the chat, and stopping and continuing an answer.

import { say } from "../base/dom.js";
import { notify } from "../base/server.js";
import { fillQuestion, giveBack, questionBox } from "./box.js";
import { loadSteps } from "./keep.js";
import { turnsUpTo } from "./tree.js";
import { chip, serverIsThere } from "../page/chip.js";
import { formNow, formReady } from "../page/form.js";
import {
  begin,
  inProjector,
  lose,
  newId,
  pages,
  redraw,
  screen,
  setTab,
  state,
  wait,
} from "../page/machine.js";

const RETRY_MS = 300; // a question that is stopped may still be on its way to the server

// The turn that the next question follows, or the chat
export const parentOfNext = ({ chat, from }) => (from ? from.parent : chat.leaf);

// Turns that are sent with a question below `parent`: the oldest ones may be left out
export const sentTurns = (parent) => turnsUpTo(parent).slice(state.chat.skipped);

const conversation = (parent) =>
  sentTurns(parent).flatMap(({ question, answer }) => [
    { role: "user", content: question },
    { role: "assistant", content: answer },
  ]);

// Ends an answer, which its server confirms; text that is on its way still arrives
export async function stop(run) {
  while (!run.finished && !(await screen.server.stop(run.id).catch(() => false)))
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  await run.ended;
}

export const stopAll = () => Promise.all([...state.open.values()].map(stop));

let sending = Promise.resolve();
export const whenSent = () => sending;

// Sends a question with the turns before it: the form's values with `changes`. from: the turn of which it is another version
function send(changes, { from = null, typed = "" } = {}) {
  notify(null);
  state.armed = false;
  if (inProjector()) document.activeElement.blur(); // so that the clicker works
  sending = sending.then(() => sendNow(changes, from, typed));
  return sending;
}

async function sendNow(changes, from, typed) {
  const refuse = (sentence) => {
    notify("error", sentence);
    if (typed) state.from = from;
    giveBack({ typed });
    redraw();
  };
  if (!(await serverIsThere())) return refuse(say("offline_kept"));
  const form = { ...formNow(), ...changes };
  const parent = () => (from ? from.parent : state.chat.leaf);
  // A question that the server would refuse does not stop the answer before it
  if (state.open.size) {
    const values = { ...form, history: conversation(parent()) };
    const trouble = await screen.server.trouble(values).catch(() => null);
    if (trouble) return refuse(trouble);
    await stopAll();
  }
  const run = begin(newId(), { parent: parent(), from, typed, form });
  screen.host.ask({ ...form, history: conversation(run.under), "run-id": run.id });
  await chip.look();
  if (chip.lost && !run.finished && !run.main) lose(run, "offline_kept");
  return undefined;
}

// Sends the text of the question box
export function ask() {
  const typed = questionBox().value;
  if (!typed.trim()) return notify("error", say("empty_question"));
  fillQuestion("");
  // A link may hold the beginning of its question's answer
  const prefix = state.linked?.question === typed ? state.linked.prefix : null;
  state.linked = null;
  return send({ question: typed, "answer-prefix": prefix }, { from: state.from, typed });
}
pages.ask = ask;

export const askOffered = (question) => send({ question }, { from: state.from });

// Adds another answer to a turn's question; the old one becomes its sibling
const askBeside = (run, changes) => send({ question: run.question, ...changes }, { from: run });

// At temperature 0 the same text would come again
export const OTHER_TEMPERATURE = 0.8;
const samplingOf = (run) => run.main?.header.sampling ?? run.form ?? {};
export const isFixed = (run) => !Number(samplingOf(run).temperature);
export const askAgain = (run) =>
  askBeside(run, {
    seed: Number(samplingOf(run).seed ?? 0) + 1,
    ...(isFixed(run) ? { temperature: OTHER_TEMPERATURE } : {}),
  });

// Token ids of an answer's beginning, and the positions of tokens that the visitor chose
const prefixOf = ({ tokens, header }, count) => [
  tokens.slice(0, count).map((token) => token.id),
  (header.forced || []).map(([place]) => place).filter((place) => place < count),
];

// Continues an answer that was cut or stopped by as many tokens as the form allows
export async function goOn(run) {
  if (!(await loadSteps(run))) return;
  const { tokens } = run.main;
  const length = tokens.length + Number(formNow().length);
  askBeside(run, { ...run.form, length, "answer-prefix": prefixOf(run.main, tokens.length) });
}

// Continues an answer from a position with a token that the visitor chose
export function goOnFrom(run, index, id) {
  const [ids, places] = prefixOf(run.main, index);
  askBeside(run, {
    ...run.form,
    "answer-prefix": [
      [...ids, id],
      [...places, index],
    ],
  });
}

// The same question and seed with trees of another size; 0: at each step the size that is fastest here
export const bigTree = (candidates) =>
  askBeside(
    state.run,
    candidates ? { tree: "fixed", candidates, levels: 6 } : { tree: "automatic" },
  );

export function edit(run) {
  state.from = run;
  fillQuestion(run.question);
  questionBox().focus();
  redraw();
}

// The next key sends the question in the box, so that a clicker can send it
export function armQuestion() {
  // The static site has no question box
  if (screen.server) {
    if (!questionBox().value.trim()) fillQuestion(screen.host.questions[0]);
    state.armed = true;
  }
  setTab("race");
}

// Continues to read an answer that the server still computes or keeps; without it, the text so far stays
export function resume(run) {
  run.reopen();
  wait(run);
  if (!run.main) state.waiting = run;
  if (run.typed && questionBox()?.value === run.typed) fillQuestion("");
  formReady.then(() => screen.host.resume({ "run-id": run.id }));
  redraw();
}
