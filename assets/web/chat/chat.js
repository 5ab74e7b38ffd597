// The chat: earlier turns above the answer, what the next question is sent with, and how a new chat starts.
(() => {
  const { h, say, counted, questionsOf } = Jakiro;

  const turns = (n) => counted("earlier_turn", n);

  // Turns that go along with the next question; an example starts a new chat
  const sentTurns = (state) => (state.fresh ? [] : state.turns.filter((run) => run.main && run.finished));

  const conversation = (state) => sentTurns(state).flatMap((run) => [
    { role: "user", content: run.question },
    { role: "assistant", content: Jakiro.textOf(run.main, run.main.tokens.length) },
  ]);

  // What an answer was sent with, as its header tells
  function sentWith(run) {
    const asked = questionsOf(run.main.header).length;
    return asked > 1 ? say("chat_sent", { turns: turns(asked - 1) }) : "";
  }

  // The line at the question box: what the next question is sent with
  function drawLine(state) {
    const line = document.querySelector("#jk-chat");
    if (!line) return;
    const count = sentTurns(state).length;
    const fresh = state.fresh && state.turns.length > 0;
    line.hidden = !fresh && !count;
    const button = (key, action) => h("button", { class: "link-button", "data-action": key, onclick: action }, say(key));
    line.replaceChildren(h("span", null, fresh ? say("chat_fresh") : say("chat_next", { turns: turns(count) })),
      fresh ? button("chat_go_on", () => begin(false)) : button("new_chat", newChat));
  }

  const newChat = () => document.querySelector("#clear").click();

  // Whether the next question starts a new chat; the old one stays until its answer comes
  function begin(fresh) {
    const { parts, state } = Jakiro.screen;
    state.fresh = fresh;
    drawChat(parts, state);
  }

  function example(text) {
    begin(true);
    return text;
  }

  // Earlier turns stand above the answer, oldest first, a line each; under it what can be done with the last one
  function drawChat(parts, state) {
    const { askAgain, edit, show } = parts.turnActions;
    const { run } = state;
    const last = state.turns[state.turns.length - 1];
    const again = run && run === last && run.finished && run.source === "live";
    parts.turns.replaceChildren(...(again ? [h("div", { class: "turn-actions" },
      h("button", { class: "plain-button", onclick: askAgain }, say("ask_again")),
      h("button", { class: "plain-button", onclick: edit }, say("edit")))] : []));
    const at = state.turns.indexOf(run);
    const earlier = state.turns.slice(0, at < 0 ? undefined : at).filter((turn) => turn.main);
    parts.earlier.hidden = !earlier.length;
    parts.earlier.replaceChildren(h("h3", null, say(at < 0 ? "your_chat" : "turns")), ...earlier.map((turn) => h("details", { class: "turn" },
      h("summary", { dir: "auto" }, turn.question),
      h("p", { class: "turn-text", dir: "auto" }, Jakiro.textOf(turn.main, turn.main.tokens.length)),
      h("button", { class: "plain-button", onclick: () => show(turn, 0) }, say("play")))));
    drawLine(state);
  }

  Object.assign(Jakiro, { conversation, sentWith, drawChat, example, newChat, freshChat: () => begin(true) });
})();
