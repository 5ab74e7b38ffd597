// The chat's column: its head, the turns, and the composer below them.

import { h, linkButton, say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { stopAll } from "./asking.js";
import { ChatsDrawer, newChat } from "./chats.js";
import { Composer } from "./composer.js";
import { live, moves, screen, state } from "../page/machine.js";
import { Alternatives } from "../watch/alternatives.js";
import { AnswerView } from "../watch/answer.js";
import { BranchBar } from "../watch/branches.js";
import { Headline } from "../watch/facts.js";

const MOST_QUESTION = 200;
const DOUBLE_CLICK_MS = 250;
const END_PX = 24; // how near its end a scrolled text counts as followed

// A waiting question, with the reason and a button that leaves the queue
export class WaitingBox {
  constructor() {
    this.question = h("b", { dir: "auto" });
    this.words = h("span");
    this.leave = linkButton("leave", stopAll, say("leave_queue"));
    this.element = h(
      "div.waiting",
      { role: "status", hidden: true },
      this.question,
      this.words,
      this.leave,
    );
  }

  draw(run) {
    this.element.hidden = !run;
    if (!run) return;
    this.words.textContent = run.waiting || say("reading");
    this.question.textContent = cut(run.form?.question || run.typed || "", MOST_QUESTION);
    this.leave.hidden = !run.waiting;
  }
}

// Calls `open` for a single click; not for a double-click, nor after a drag that selected text, nor while the answer grows
function onSingleClick(open) {
  let timer = 0;
  return (index, { detail }) => {
    clearTimeout(timer);
    if (detail > 1 || !getSelection().isCollapsed || live()) return;
    timer = setTimeout(() => getSelection().isCollapsed && open(index), DOUBLE_CLICK_MS);
  };
}

// The text follows its end only while the end is in view; a button leads back to it
class Follower {
  constructor(box, button) {
    Object.assign(this, { box, button, atEnd: true });
    box.addEventListener("scroll", () => this.look(), { passive: true });
    button.addEventListener("click", () => this.toEnd());
  }

  look() {
    const { scrollHeight, scrollTop, clientHeight } = this.box;
    this.atEnd = scrollHeight - scrollTop - clientHeight < END_PX;
    this.button.hidden = this.atEnd || !state.open.size;
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
    this.atEnd = true;
    this.button.hidden = true;
  }

  follow() {
    if (this.atEnd) this.toEnd();
    else this.button.hidden = !state.open.size;
  }
}

const chatHead = (parts) => {
  parts.chats = new ChatsDrawer();
  parts.title = h("h2.chat-title", { dir: "auto" });
  return h(
    "div.chat-head",
    h("button.plain-button", { id: "jk-show-chats", popovertarget: "jk-chats" }, say("chats")),
    parts.title,
    h("span.gap"),
    h("button.plain-button", { id: "clear", onclick: newChat }, say("new_chat")),
    parts.chats.element,
  );
};

export function chatPane(parts) {
  const headline = h("div.headline", {
    role: "group",
    "aria-label": say("numbers"),
    hidden: true,
  });
  parts.headline = new Headline(headline);
  parts.earlier = h("div.earlier", { hidden: true });
  parts.later = h("div.later");
  parts.question = h("p.asked", { dir: "auto" });
  parts.sentWith = h("p.sent-with.muted");
  parts.empty = h("p.muted.empty", say("empty_answer"));
  parts.answerText = h("div.answer-host");
  parts.turns = h("div.turn-actions");
  parts.branches = new BranchBar();
  parts.shown = h(
    "article.turn.shown",
    parts.question,
    parts.sentWith,
    parts.empty,
    parts.answerText,
    headline,
    parts.branches.element,
    parts.turns,
  );
  parts.answerScroll = h(
    "div.answer-scroll",
    { id: "jk-answer", tabindex: -1 },
    screen.server
      ? h("div.hero", h("p.hero-title", say("hero_title")), h("p.muted", say("hero_text")))
      : null,
    parts.earlier,
    parts.shown,
    parts.later,
    parts.waiting[0].element,
  );
  const newest = h("button.newest", { hidden: true }, say("newest_text"));
  parts.follower = new Follower(parts.answerScroll, newest);
  parts.composer = screen.server ? new Composer() : null;
  const pane = h(
    "section.pane.answer-pane",
    { "aria-label": say("chat") },
    h("h2.voice", say("answer")),
    screen.server ? chatHead(parts) : null,
    parts.answerScroll,
    newest,
    parts.composer?.element,
  );
  parts.alternatives = new Alternatives(pane, (index) =>
    parts.answerText.querySelector(`[data-token="${index}"]`),
  );
  parts.answer = new AnswerView(
    parts.answerText,
    onSingleClick((index) => {
      const { step } = state.run.main.tokens[index];
      if (step >= 0) moves.seek(step);
      parts.alternatives.open(state.run, index);
    }),
  );
  return pane;
}
