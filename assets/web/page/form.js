// The form's values: current values, values of a first visit, and fields that the visitor changed.

import { attempt, memory, say, setText } from "../base/dom.js";
import { fillQuestion } from "../chat/box.js";

const FORM = "jakiro-form"; // where a tab keeps its settings

let current = null; // the settings in the form, by name
let defaults = null; // values of a first visit, by name
let requested = {}; // values that the page puts into the form, by name
let setForm = null; // makes Gradio call `formSet`
let tellReady = null;
export const formReady = new Promise((tell) => (tellReady = tell)); // once the form's values are known
const chosen = new Set(); // fields that the visitor, or a link, has set

export const byName = (names, values) =>
  Object.fromEntries(names.map((name, i) => [name, values[i]]));
export const formNow = () => current;
export const formDefaults = () => defaults;
export const fieldsChosen = (names) => names.forEach((name) => chosen.add(name));
export const asksFast = () => Boolean(current && current.numerics === "fast");

const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b);

export function formIs(values) {
  current = values;
  const button = document.getElementById("reset-settings");
  if (!button || !defaults) return;
  const n = Object.keys(values).filter((name) => !isSame(values[name], defaults[name])).length;
  setText(button, n ? say("reset_changed", { n }) : say("reset"));
  button.disabled = !n;
}

export function resetForm() {
  const { question, ...values } = defaults;
  fillForm(values);
}

export const setFormWith = (set) => (setForm = set);

// Puts values into fields of the form, by name
export function fillForm(values) {
  requested = { ...requested, ...values };
  formReady.then(() => setForm?.());
}

// Called by Gradio: the form's values with the requested values of the page
export function formSet(names, values) {
  const filled = { ...byName(names, values), ...requested };
  requested = {};
  current = { ...current, ...filled };
  return names.map((name) => filled[name]);
}

// Called by Gradio when the page is loaded: the values that this tab had before, by the same names
export function restoreForm(names, values) {
  defaults = { question: "", ...byName(names, values) };
  const stored = attempt(() => JSON.parse(memory.get(FORM) || "{}"), {});
  const { question = "", ...fields } = stored;
  fieldsChosen(Object.keys(fields));
  if (question) fillQuestion(question);
  const restored = names.map((name, i) =>
    typeof fields[name] === typeof values[i] ? fields[name] : values[i],
  );
  formIs(byName(names, restored));
  const drawer = document.querySelector("#settings");
  drawer.popover = "auto";
  drawer.querySelector("input").autofocus = true;
  tellReady();
  return restored;
}

export const rememberForm = (question) =>
  memory.set(FORM, JSON.stringify({ ...current, question }));

// Sets values that suit the device: the numerics of the loaded model, and a length that it writes soon
export function openWith(values) {
  const open = Object.entries(values).filter(([name, value]) => value && !chosen.has(name));
  fieldsChosen(open.map(([name]) => name));
  if (open.length)
    formReady.then(() => {
      Object.assign(defaults, Object.fromEntries(open));
      fillForm(Object.fromEntries(open));
    });
}

for (const kind of ["change", "input"]) {
  document.addEventListener(
    kind,
    (event) => {
      const field = event.isTrusted && event.target.closest("#numerics, #length");
      if (field) chosen.add(field.id);
    },
    true,
  );
}
