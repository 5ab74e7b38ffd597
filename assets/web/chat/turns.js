// The turns of a chat as the next question takes them along.

import { textOf } from "../data/history.js";

// Turns that go along with the next question: those before the one that it takes the place of
export function sentTurns({ turns, from }) {
  const at = from ? turns.indexOf(from) : -1;
  return turns.slice(0, at < 0 ? undefined : at).filter((run) => run.main && run.finished);
}

export const conversation = (state) => sentTurns(state).flatMap((run) => [
  { role: "user", content: run.question },
  { role: "assistant", content: textOf(run.main, run.main.tokens.length) },
]);
