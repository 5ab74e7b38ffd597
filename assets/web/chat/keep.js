// Conversion between a chat and its records in the browser's database.

import { notify } from "../base/server.js";
import { say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { Run, readTraces, runFromTraces, tracesOf } from "../data/history.js";
import { storedTrace, storedTurns, putChat, putTrace, putTurn } from "./store.js";
import { Chat, addTurn, chatOf, choose, turnsBelow } from "./tree.js";

const MOST_TITLE = 80;
const SAVE_MS = 2000; // between two writes of a growing answer

export function titleOf(chat) {
  const question = chat.children[0]?.question ?? "";
  const isVisible = /[^\p{C}\p{Z}]/u.test(question);
  return chat.title || (isVisible || !question ? cut(question, MOST_TITLE) : say("untitled"));
}

// Stores which turns are on screen, and the title
export function saveChat(chat) {
  if (!chat.children.length) return;
  const { id, created, skipped } = chat;
  const path = chat.path.map((turn) => turn.id);
  putChat({ id, created, skipped, path, title: titleOf(chat), updated: Date.now() });
}

export function saveTurn(run) {
  const chat = chatOf(run);
  if (!(chat instanceof Chat)) return;
  run.created ??= Date.now();
  const { id, form, skipped, question, answer, endReason, numTokens, created } = run;
  const parent = run.parent === chat ? null : run.parent.id;
  const text = { question, answer, endReason, numTokens };
  putTurn({ id, chat: chat.id, parent, form, skipped, created, ...text });
  if (run.finished && run.main) saveSteps(run, chat);
  saveChat(chat);
}

// Answers with steps that are not stored yet; a page that is reloaded now requests them from the server
export const unsaved = new Set();

async function saveSteps(run, chat) {
  unsaved.add(run);
  await putTrace(run.id, chat.id, tracesOf(run));
  unsaved.delete(run);
}

export function saveGrowing(run) {
  const now = performance.now();
  if (now - (run.savedAt ?? -Infinity) < SAVE_MS) return;
  run.savedAt = now;
  saveTurn(run);
}

// A stored chat as a tree of turns without lanes
export async function loadChat({ id, path = [], ...values }) {
  const chat = new Chat(id, values);
  const records = (await storedTurns(id)).sort((a, b) => a.created - b.created);
  const nodes = new Map([[null, chat]]);
  for (const { form, skipped, created, parent, ...stored } of records) {
    const run = Object.assign(new Run(stored.id, "live", stored), { form, skipped, created });
    run.stop();
    nodes.set(run.id, run);
    addTurn(nodes.get(parent) ?? chat, run);
  }
  path.filter((turn) => nodes.has(turn)).forEach((turn) => choose(nodes.get(turn)));
  return chat;
}

// Loads the steps of a stored answer; false and a notice where the browser no longer has them
export async function loadSteps(run) {
  if (run.main) return true;
  const traces = await storedTrace(run.id);
  if (traces && !run.main) readTraces(run, traces);
  if (!traces) notify("notice", say("steps_dropped"));
  return Boolean(run.main);
}

// A chat as release 0.10 kept it in the session storage: turns with branches, each with the turns that had followed it
export function importOldChat(chat, turns) {
  const add = (under, { id, form, traces, tail }) => {
    const run = Object.assign(runFromTraces(id, "live", traces), { form });
    addTurn(under, run);
    importBelow(run, tail);
    return run;
  };
  const importBelow = (under, below) => {
    let last = under;
    for (const { branches, shown } of below) {
      const all = branches.map((branch) => add(last, branch));
      last = all[shown];
      choose(last);
    }
    return last;
  };
  choose(importBelow(chat, turns));
  let created = Date.now();
  turnsBelow(chat).forEach((run) => {
    run.created = created += 1;
    saveTurn(run);
  });
}
