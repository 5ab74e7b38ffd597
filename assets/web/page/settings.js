// The form around the view: what is sent with a question, and which settings differ from the answer on screen.

import { say } from "../base/dom.js";
import { fill } from "../chat/asking.js";
import { formDefaults } from "../chat/visit.js";
import { moves } from "./moves.js";

let current = null; // the settings as they stand in the form, by name

const byName = (names, values) => Object.fromEntries(names.map((name, i) => [name, values[i]]));

const SMALL = 12; // candidates of a mean step

// Whether a finished answer drew small trees because larger ones do not pay here
export const drewSmallTrees = (run) => Boolean(run && run.source === "live" && run.finished && run.main && run.main.steps.length
  && run.main.header.tree.policy === "auto" && !run.main.isPlain && String(run.main.header.device).startsWith("cpu")
  && run.main.steps.reduce((sum, step) => sum + step.nodes.length - 1, 0) < SMALL * run.main.steps.length);

export function settingsChanged(names, values) {
  current = byName(names, values);
  markSettings(moves.state.run);
  if (Jakiro.chip && Jakiro.chip.value) Jakiro.chip.draw(Jakiro.chip.value);
}

// Marks settings that differ from those of the answer on screen; sizes count only where the tree is fixed
export function markSettings(run) {
  for (const [name, value] of Object.entries(current || {})) {
    const idle = current.tree === say("automatic") && (name === "candidates" || name === "levels");
    const differs = Boolean(run && run.form && !idle && JSON.stringify(run.form[name]) !== JSON.stringify(value));
    const field = document.getElementById(name);
    if (field && differs) field.dataset.next = say("next_answer");
    else if (field) delete field.dataset.next;
  }
}

const chosen = new Set(); // fields that somebody, or a link, has set

// The form opens with what suits the device: the numerics that the model was loaded with, and a length that it writes soon
export function openWith(values) {
  for (const [name, value] of Object.entries(values)) {
    const field = document.querySelector(name === "numerics" ? `#numerics input[value="${value}"]` : `#${name} input`);
    if (!field || !value) continue;
    if (formDefaults()) formDefaults()[name] = value;
    if (chosen.has(name)) continue;
    chosen.add(name);
    if (field.type !== "radio") fill(field, value);
    else if (!field.checked) field.click();
  }
}

for (const kind of ["change", "input"]) {
  document.addEventListener(kind, (event) => {
    const field = event.isTrusted && event.target.closest("#numerics, #length");
    if (field) chosen.add(field.id);
  }, true);
}
export const fieldsChosen = (names) => names.forEach((name) => chosen.add(name));

export const asksFast = () => Boolean(current && current.numerics === say("fast"));

export const formNow = () => current;
