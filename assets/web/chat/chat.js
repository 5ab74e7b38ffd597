// The chat: earlier turns above the answer, what can be done with each, and how a new chat starts.

import { counted, h, linkButton, say } from "../base/dom.js";
import { notify } from "../base/server.js";
import { OTHER_TEMPERATURE, askAgain, edit, goOn, isFixed, sentTurns } from "./asking.js";
import { questionsOf } from "../data/history.js";
import { chip } from "../page/chip.js";
import { change, redrawNow, screen, show, state } from "../page/machine.js";
import { openPairs } from "../page/pairs.js";
import { AnswerView } from "../watch/answer.js";

// What an answer was sent with, as its header tells
export function sentWith(run) {
  const asked = questionsOf(run.main.header).length;
  return asked > 1 ? say("chat_sent", { turns: counted("earlier_turn", asked - 1) }) : "";
}

function placeForLine() {
  const row = document.querySelector("#question-row");
  const line = h("div", { class: "chat-line", id: "jk-chat", role: "status" });
  if (row) row.append(line);
  else if (screen.server) requestAnimationFrame(redrawNow);
  return line;
}

// Beside the question box: what the next question is sent with, or takes the place of
function drawLine() {
  const line = document.querySelector("#jk-chat") || placeForLine();
  const count = sentTurns(state).length;
  const said = state.from
    ? [say(count ? "chat_instead" : "chat_fresh"), linkButton("chat_go_on", () => startFrom(null))]
    : count
      ? [
          say("chat_next", { turns: counted("earlier_turn", count) }),
          linkButton("new_chat", () => document.querySelector("#clear").click()),
        ]
      : state.putAway
        ? [say("chat_put_away"), linkButton("chat_undo", undo)]
        : chip.value?.target
          ? [
              h(
                "span",
                { title: chip.value.size || null },
                say("answers_here", { target: chip.value.target }),
              ),
              chip.value.choosable && linkButton("other_model", openPairs),
            ]
          : [];
  line.replaceChildren(...said.filter(Boolean));
}

// From which turn on the next question replaces the chat; the old turns stay until its answer comes
const startFrom = (from) => change({ from });

// Puts the chat away; until the next question it can be brought back
export function clear() {
  state.turns.forEach((run) => run.stop());
  const putAway = state.turns.length
    ? { turns: state.turns, run: state.run, index: state.index }
    : state.putAway;
  Object.assign(state, { turns: [], waiting: null, from: null, putAway });
  notify(null);
  show(null);
}

function undo() {
  const { turns, run, index } = state.putAway;
  Object.assign(state, { turns, putAway: null });
  show(run, index);
}

// What can be done with a finished turn
function actions(run) {
  const cut = run.main.endReason === "length";
  const again = isFixed(run)
    ? say("other_wording", { temperature: OTHER_TEMPERATURE })
    : say("ask_again");
  return h(
    "div",
    { class: "turn-buttons" },
    cut ? linkButton("go_on", () => goOn(run)) : null,
    linkButton("ask_again", () => askAgain(run), again),
    linkButton("edit", () => edit(run)),
  );
}

// An earlier turn, whose answer is drawn with its marks when somebody opens it
function turnOf(turn) {
  const answer = h("div", { class: "turn-text" });
  const open = () =>
    answer.childNodes.length ||
    new AnswerView(answer).draw(turn.main, turn.main.tokens.length, {
      live: false,
      formatted: state.formatted,
    });
  return h(
    "details",
    { class: "turn", ontoggle: open },
    h("summary", { dir: "auto", onclick: open }, turn.question),
    answer,
    h(
      "div",
      { class: "turn-buttons" },
      linkButton("show_turn", () => show(turn)),
      turn.finished ? actions(turn) : null,
    ),
  );
}

// Earlier turns stand above the answer, oldest first, a line each; under it what can be done with it
let drawn = "";
export function drawChat(parts, { run, turns, from, putAway }) {
  const at = turns.indexOf(run);
  const key = JSON.stringify([
    turns.map((turn) => [turn.id, Boolean(turn.main), turn.finished]),
    run?.id,
    from?.id,
    Boolean(putAway),
    chip.value?.target,
  ]);
  if (key === drawn && document.querySelector("#jk-chat")) return;
  drawn = key;
  document.body.dataset.asked = turns.length || (run && run.source !== "recording") ? "1" : "";
  parts.turns.replaceChildren(...(at >= 0 && run.main && run.finished ? [actions(run)] : []));
  const others = turns.filter((turn, i) => turn.main && i !== at);
  parts.earlier.hidden = !others.length;
  parts.earlier.replaceChildren(...others.map(turnOf));
  drawLine();
}

export const freshChat = () => startFrom(state.turns[0] || null);
