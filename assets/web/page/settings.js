// What follows from the settings, and whether small trees are worth a word.

import { chip } from "./chip.js";
import { byName, formIs } from "./form.js";
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
