// The size of the draft trees: how large they are in this answer, and the same question with another size.

import { h, rate, say } from "../base/dom.js";
import { bigTree } from "../chat/asking.js";
import { screen } from "../page/machine.js";

const AUTOMATIC = 0;
const SIZES = [AUTOMATIC, 12, 24, 60];

// Expected tokens per second with trees of this many guesses, as the step's budget predicts; null where it does not
function expectedSpeed(step, candidates) {
  const curve = step?.plan.curve ?? [];
  const near = curve.filter(([nodes]) => Math.abs(nodes - 1 - candidates) <= candidates / 3);
  const distance = ([nodes]) => Math.abs(nodes - 1 - candidates);
  return near.length ? near.toSorted((a, b) => distance(a) - distance(b))[0][1] : null;
}

function optionWords(step, candidates) {
  if (candidates === AUTOMATIC) return say("size_automatic");
  const speed = expectedSpeed(step, candidates);
  return speed === null
    ? say("size_fixed", { n: candidates })
    : say("size_cost", { n: candidates, speed: rate(speed) });
}

export class TreeSize {
  constructor() {
    this.options = SIZES.map((size) => h("option", { value: size }));
    this.other = h("option", { value: -1, hidden: true });
    this.select = h(
      "select",
      {
        "aria-label": say("tree_size"),
        title: say("tree_size_about"),
        onchange: () => this.choose(),
      },
      this.options,
      this.other,
    );
    this.element = h("span.tree-size", this.select);
  }

  draw({ run, main, step }) {
    this.element.hidden = !(screen.server && main && !main.isPlain && run.source === "live");
    if (this.element.hidden) return;
    const { policy, nodes } = main.header.tree;
    this.current = policy === "auto" ? AUTOMATIC : nodes - 1;
    this.select.disabled = !run.finished;
    const key = JSON.stringify([main.header.created, step?.index, this.current]);
    if (key === this.key) return;
    this.key = key;
    this.options.forEach((option, i) => (option.textContent = optionWords(step, SIZES[i])));
    const listed = SIZES.includes(this.current);
    this.other.textContent = say("size_fixed", { n: this.current });
    this.select.value = listed ? this.current : -1;
  }

  choose() {
    this.key = null; // the answer on screen keeps its size, also if the question is rejected
    const size = Number(this.select.value);
    if (size >= 0 && size !== this.current) bigTree(size);
  }
}
