// Larger type for a hall, remembered for the visit.

import { memory } from "../base/dom.js";
import { redrawNow } from "./machine.js";

export const inProjector = () => document.documentElement.classList.contains("projector");

export function projector(on) {
  document.documentElement.classList.toggle("projector", on);
  memory.set("jakiro-projector", on ? "1" : "");
  document.querySelectorAll('[data-action="projector"]').forEach((button) => button.setAttribute("aria-pressed", String(on)));
  redrawNow();
}
