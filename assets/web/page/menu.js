// The menu "⋯" in the header: how the view is shown, links and files, keys, and large type for a hall.

import { h, memory, popMenu, say } from "../base/dom.js";
import { saveMenu } from "./save.js";
import { redraw } from "./schedule.js";
import { copyButton } from "../share/address.js";
import { linkTo } from "../share/link.js";

const KEYS = ["step", "play", "phase", "guess", "live"];
const PACES = ["1", "0.5", "0.25", "0.1", "step"];

export const inProjector = () => document.documentElement.classList.contains("projector");

// Larger type for a hall, remembered for the visit
function projector(on) {
  document.documentElement.classList.toggle("projector", on);
  memory.set("jakiro-projector", on ? "1" : "");
  document.querySelectorAll('[data-action="projector"]').forEach((button) => button.setAttribute("aria-pressed", String(on)));
  redraw();
}

// A switch in the menu; `set` is told whether it is on
function option(key, set) {
  const box = h("input", { type: "checkbox", "data-toggle": key, onchange: () => set(box.checked) });
  return h("label", { class: "option" }, box, say(key));
}

export function pageMenu(state, on, pane) {
  const set = (name, ...parts) => (value) => {
    state[name] = value;
    on.redraw(...parts);
  };
  const pace = h("select", { onchange: () => (state.pace = pace.value) },
    PACES.map((value) => h("option", { value }, value === "step" ? say("step_by_step") : `${value}×`)));
  const hall = h("button", { class: "plain-button", "data-action": "projector", "aria-pressed": "false",
    onclick: () => projector(!inProjector()) }, say("projector"));
  if (memory.get("jakiro-projector")) requestAnimationFrame(() => projector(true));
  const list = [hall, on.server ? copyButton(() => linkTo(state)) : null, saveMenu(state, on.server),
    h("fieldset", { class: "view-options" }, h("legend", { class: "muted" }, say("view_options")),
      option("guess_first", on.guessFirst), option("show_spaces", (shown) => {
        pane.classList.toggle("spaces", shown);
        set("spaces", "tree")(shown);
      }), option("markdown_view", set("markdown", "text")), option("choices", set("choices", "tree")), option("show_all", set("showAll", "tree")),
      option("read_as_list", set("list", "tree")), h("label", { class: "option" }, say("speed_label"), pace)),
    h("dl", { class: "keys" }, h("dt", { class: "muted" }, say("keys")), [...KEYS, ...(on.server ? ["ask"] : [])].map((key) => h("dd", null, say(`key_${key}`))))];
  return popMenu("page-menu", h("summary", { class: "plain-button", "aria-label": say("menu") }, "⋯"), list);
}
