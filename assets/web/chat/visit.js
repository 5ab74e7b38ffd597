// What a visit keeps when the page is loaded anew: the chat's answers, the question in the box, and the settings.

import { attempt, counted, memory, say } from "../base/dom.js";
import { notify } from "../base/server.js";
import { resume } from "./asking.js";
import { questionBox } from "./box.js";
import { runFromTraces, tracesOf } from "../data/history.js";
import { byName, fieldsChosen, formNow, formStartsWith } from "../page/form.js";
import { screen, show, state } from "../page/machine.js";

const CHAT = "jakiro-chat";
const FORM = "jakiro-form";

const packedTurn = (run) => ({
  branches: run.branches.map(packed),
  shown: run.branches.indexOf(run),
});
const packed = (run) => ({
  id: run.id,
  form: run.form,
  tail: (run.tail || []).map(packedTurn),
  traces: tracesOf(run),
});

// Keeps the newest answers that the browser has room for, and the number of the older ones that are lost
function keepChat(turns, writing) {
  const texts = turns.map((run) => JSON.stringify(packedTurn(run)));
  for (let left = 0; left <= texts.length; left += 1) {
    if (
      memory.set(
        CHAT,
        `{"runs":[${texts.slice(left)}],"left":${left},"writing":${JSON.stringify(writing || null)}}`,
      )
    )
      return;
  }
}

function keep() {
  const writing = state.turns.find((run) => !run.finished) || state.lost;
  const box = questionBox();
  const turns = state.turns.flatMap((run) => (run.main ? [run] : run.replaced || []));
  keepChat(
    turns,
    writing && {
      id: writing.id,
      form: writing.form,
      joins: writing.joins,
      from: writing.from?.id,
      question: writing.question || writing.form?.question,
    },
  );
  memory.set(FORM, JSON.stringify({ ...formNow(), question: box?.value }));
}

function unpackedTurn({ branches, shown }) {
  const runs = branches.map(({ id, form, traces, tail }) =>
    Object.assign(runFromTraces(id, "live", traces), { form, tail: tail.map(unpackedTurn) }),
  );
  runs.forEach((run) => {
    run.branches = runs;
    state.seen.add(run.id);
  });
  return runs[shown];
}

// Puts the chat back as it was; what does not read as a chat is dropped
export function restore() {
  try {
    const kept = JSON.parse(memory.get(CHAT) || "null");
    if (!kept) return;
    state.turns = kept.runs.map(unpackedTurn);
    const last = state.turns[state.turns.length - 1];
    if (last) show(last);
    if (kept.left)
      notify("error", say("visit_lost", { turns: counted("earlier_turn", kept.left) }));
    if (kept.writing) {
      const { id, form, question, joins, from } = kept.writing;
      const itself = state.turns.find((run) => run.id === id);
      resume(id, {
        from: itself || state.turns.find((run) => run.id === from),
        form,
        typed: question,
        joins: itself ? "within" : joins,
      });
    }
  } catch {
    state.turns = [];
  } finally {
    memory.set(CHAT, "");
  }
}

// The form's values of before, by the same names; its own where nothing was kept
export function keptForm(names, values) {
  formStartsWith(byName(names, values));
  const kept = attempt(() => JSON.parse(memory.get(FORM) || "{}"), {});
  fieldsChosen(Object.keys(kept));
  return names.map((name, i) => (typeof kept[name] === typeof values[i] ? kept[name] : values[i]));
}

addEventListener("pagehide", () => screen.server && keep());
