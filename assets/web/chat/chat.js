// The chat: its turns in order, with their actions. The figure shows the steps of one of them.

import { counted, copied, h, linkButton, say, setText } from "../base/dom.js";
import { fromText } from "../base/pieces.js";
import { OTHER_TEMPERATURE, askAgain, edit, goOn, isFixed } from "./asking.js";
import { chatTitle, showTurn } from "./chats.js";
import { questionsOf } from "../data/history.js";
import { TARGET } from "../data/methods.js";
import { state } from "../page/machine.js";
import { AnswerView } from "../watch/answer.js";
import { BranchBar } from "../watch/branches.js";

// How many turns an answer was sent with, according to its header
export function sentWith(run) {
  const asked = questionsOf(run.main.header).length;
  return asked > 1 ? say("chat_sent", { turns: counted("earlier_turn", asked - 1) }) : "";
}

const DONE_MS = 2000;

// A button that copies an answer as Markdown, as the model wrote it, and shows whether it worked
function copyAnswer(run) {
  const button = linkButton("copy_answer", async () => {
    const worked = await copied(run.answer.replace(/�+$/, ""));
    setText(button, say(worked ? "copy_done" : "copy_failed"));
    setTimeout(() => setText(button, say("copy_answer")), DONE_MS);
  });
  return button;
}

// Actions of a finished turn
function actions(run) {
  const unfinished = ["length", "stopped"].includes(run.endReason);
  const again = isFixed(run)
    ? say("other_wording", { temperature: OTHER_TEMPERATURE })
    : say("ask_again");
  return h(
    "div.turn-buttons",
    unfinished ? linkButton("go_on", () => goOn(run)) : null,
    run === state.run ? null : linkButton("show_turn", () => showTurn(run)),
    copyAnswer(run),
    linkButton("ask_again", () => askAgain(run), again),
    linkButton("edit", () => edit(run)),
  );
}

// A text as a lane of one token, which has no marks
const plainLane = (text) => ({
  tokens: [{ id: -1, bytes: fromText(text), special: null, proposer: TARGET, step: -1 }],
});

// A turn without marks, as its steps are not shown
function turnOf(run) {
  const answer = h("div.turn-text");
  new AnswerView(answer).draw(plainLane(run.answer), 1, {
    live: false,
    formatted: state.formatted,
  });
  const branches = new BranchBar();
  branches.draw(run);
  return h(
    "article.turn",
    { "data-turn": run.id },
    h("p.turn-question", { dir: "auto" }, run.question),
    answer,
    branches.element,
    run.finished ? actions(run) : null,
  );
}

// Elements of turns by run, drawn again when something about the turn has changed
const drawn = new WeakMap();
function turnElement(run) {
  const key = [
    run.finished,
    run.branches.length,
    run.branches.indexOf(run),
    state.formatted,
  ].join();
  const known = drawn.get(run);
  if (known?.key === key && run.finished) return known.element;
  const element = turnOf(run);
  drawn.set(run, { key, element });
  return element;
}

let last = "";
export function drawChat(parts, { run, turns, formatted, chat }) {
  // A saved page has no title above its one answer
  if (parts.title) setText(parts.title, turns.length ? chatTitle() : "");
  parts.composer?.draw();
  const at = turns.indexOf(run);
  const about = turns.map((turn) => [turn.id, turn.finished, turn.branches.length]);
  const key = JSON.stringify([chat.id, about, run?.id, Boolean(run?.main), formatted]);
  if (key === last) return;
  last = key;
  document.body.dataset.asked = turns.length || (run && run.source !== "recording") ? "1" : "";
  const isTurn = at >= 0 && run.main;
  parts.turns.replaceChildren(...(isTurn && run.finished ? [actions(run)] : []));
  const others = turns.map((turn, i) => (isTurn && i === at ? null : turnElement(turn)));
  parts.earlier.replaceChildren(...others.slice(0, isTurn ? at : turns.length).filter(Boolean));
  parts.later.replaceChildren(...others.slice(isTurn ? at : turns.length).filter(Boolean));
  parts.earlier.hidden = !parts.earlier.childNodes.length;
  // For an earlier answer without steps, or a recording during a chat, the chat shows no marked turn
  parts.shown.hidden = turns.length > 0 && !isTurn;
}
