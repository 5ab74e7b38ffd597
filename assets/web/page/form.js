// The form's values as the page knows them: what it holds now, what it held on a first visit, and what somebody chose.

import { say } from "../base/dom.js";
import { fill } from "../chat/box.js";

let current = null; // the settings as they stand in the form, by name
let defaults = null; // what the form holds on a first visit, by name
let tellReady = null;
export const formReady = new Promise((tell) => (tellReady = tell)); // once the form has said what it holds
const chosen = new Set(); // fields that somebody, or a link, has set

export const byName = (names, values) =>
  Object.fromEntries(names.map((name, i) => [name, values[i]]));
export const formNow = () => current;
export const formDefaults = () => defaults;
export const fieldsChosen = (names) => names.forEach((name) => chosen.add(name));
export const asksFast = () => Boolean(current && current.numerics === say("fast"));

export const formIs = (values) => (current = values);

export function formStartsWith(values) {
  defaults = values;
  const drawer = document.querySelector("#settings");
  drawer.popover = "auto";
  drawer.querySelector("input").autofocus = true;
  tellReady();
}

// The form opens with what suits the device: the numerics that the model was loaded with, and a length that it writes soon
export function openWith(values) {
  for (const [name, value] of Object.entries(values)) {
    const field = document.querySelector(
      name === "numerics" ? `#numerics input[value="${value}"]` : `#${name} input`,
    );
    if (!field || !value) continue;
    if (defaults) defaults[name] = value;
    if (chosen.has(name)) continue;
    chosen.add(name);
    if (field.type !== "radio") fill(field, value);
    else if (!field.checked) field.click();
  }
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
