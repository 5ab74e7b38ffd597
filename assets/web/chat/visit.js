// What a visit keeps when the page is loaded anew: the chat's answers, the question in the box, and the settings.

import { counted, memory, say } from "../base/dom.js";
import { questionBox, resume } from "./asking.js";
import { runFromTraces, traceOf } from "../data/history.js";
import { fieldsChosen, formNow } from "../page/settings.js";
import { screen } from "../page/state.js";
import { notify } from "../page/top.js";

const CHAT = "jakiro-chat";
const FORM = "jakiro-form";
let defaults = null; // what the form holds on a first visit, by name

const packed = (run) => ({ id: run.id, form: run.form,
  traces: Object.fromEntries(Object.entries(run.lanes).map(([name, lane]) => [name, traceOf(lane)])) });

// Keeps the newest answers that the browser has room for, and the number of the older ones that are lost
function keepChat(turns, writing) {
  const texts = turns.map((run) => JSON.stringify(packed(run)));
  for (let left = 0; left <= texts.length; left += 1) {
    if (memory.set(CHAT, `{"runs":[${texts.slice(left)}],"left":${left},"writing":${JSON.stringify(writing || null)}}`)) return;
  }
}

function keep() {
  const { state } = screen;
  const writing = state.turns.find((run) => !run.finished) || state.lost;
  const box = questionBox();
  const turns = state.turns.flatMap((run) => (run.main ? [run] : run.replaced || []));
  keepChat(turns, writing && { id: writing.id, form: writing.form, n: writing.main ? writing.main.tokens.length : 0,
    question: writing.question || writing.form?.question });
  memory.set(FORM, JSON.stringify({ ...formNow(), question: box?.value }));
}

// The server no longer keeps the answer: what there is of it
export function tellCut(run) {
  const from = run.main || run.replaced[0]?.main;
  notify("error", say("visit_cut", { n: from?.tokens.length || 0 }));
}

// Puts the chat back as it was; what does not read as a chat is dropped
export function restore(show) {
  const { state } = screen;
  try {
    const kept = JSON.parse(memory.get(CHAT) || "null");
    if (!kept) return;
    state.turns = kept.runs.map(({ id, form, traces }) => Object.assign(runFromTraces(id, "live", traces), { form }));
    state.turns.forEach((run) => state.seen.add(run.id));
    const last = state.turns[state.turns.length - 1];
    if (last) show(last, Infinity);
    if (kept.left) notify("error", say("visit_lost", { turns: counted("earlier_turn", kept.left) }));
    if (kept.writing) {
      const { id, form, question } = kept.writing;
      resume(id, { from: state.turns.find((run) => run.id === id), form, typed: question });
    }
  } catch {
    state.turns = [];
  } finally {
    memory.set(CHAT, "");
  }
}

// The form's values of before, by the same names; its own where nothing was kept
export function keptForm(names, values) {
  let kept = {};
  defaults = Object.fromEntries(names.map((name, i) => [name, values[i]]));
  try {
    kept = JSON.parse(memory.get(FORM) || "{}");
  } catch {
    kept = {};
  }
  fieldsChosen(Object.keys(kept));
  return names.map((name, i) => (typeof kept[name] === typeof values[i] ? kept[name] : values[i]));
}

addEventListener("pagehide", () => screen.parts && screen.parts.live && keep());

export const formDefaults = () => defaults;
