// Which settings differ from the answer on screen, and whether small trees are worth a word.

import { say } from "../base/dom.js";
import { chip } from "./chip.js";
import { byName, formIs, formNow } from "./form.js";
import { redraw } from "./machine.js";

const SMALL = 12; // candidates of a mean step

// Whether a finished answer drew small trees because larger ones do not pay here
export const drewSmallTrees = (run) => Boolean(run && run.source === "live" && run.finished && run.main && run.main.steps.length
  && run.main.header.tree.policy === "auto" && !run.main.isPlain && String(run.main.header.device).startsWith("cpu")
  && run.main.steps.reduce((sum, step) => sum + step.nodes.length - 1, 0) < SMALL * run.main.steps.length);

export function settingsChanged(names, values) {
  formIs(byName(names, values));
  if (chip.value) chip.draw(chip.value);
  redraw();
}

// Marks settings that differ from those of the answer on screen; sizes count only where the tree is fixed
export function markSettings(run) {
  const current = formNow() || {};
  for (const [name, value] of Object.entries(current)) {
    const idle = current.tree === say("automatic") && (name === "candidates" || name === "levels");
    const differs = Boolean(run && run.form && !idle && JSON.stringify(run.form[name]) !== JSON.stringify(value));
    const field = document.getElementById(name);
    if (field && differs) field.dataset.next = say("next_answer");
    else if (field) delete field.dataset.next;
  }
}
