// The siblings of a turn, ‹ 2 of 3 ›: other answers, other wordings, and answers that continue from a chosen word.

import { h, linkButton, say } from "../base/dom.js";
import { showBranch } from "../page/machine.js";

export class BranchBar {
  constructor() {
    const button = (key, sign, move) =>
      h("button.plain-button", { "data-action": key, "aria-label": say(key), onclick: move }, sign);
    this.words = h("span.tabular");
    this.before = button("branch_before", "‹", () => this.go(-1));
    this.next = button("branch_next", "›", () => this.go(1));
    this.undo = linkButton("branch_undo", () => this.go(-1, true));
    this.element = h(
      "div.branches",
      { role: "group", hidden: true },
      this.before,
      this.words,
      this.next,
      this.undo,
    );
  }

  draw(run) {
    this.run = run;
    this.element.hidden = !run || run.branches.length < 2;
    if (this.element.hidden) return;
    const { branches } = run;
    const at = branches.indexOf(run);
    this.words.textContent = say("branch", { n: at + 1, all: branches.length });
    this.before.disabled = !run.finished || at === 0;
    this.next.disabled = !run.finished || at === branches.length - 1;
    this.undo.hidden = !run.finished || at === 0 || run.source !== "live";
  }

  go(by, undo) {
    const { run } = this;
    showBranch(run, run.branches[run.branches.indexOf(run) + by], undo);
  }
}
