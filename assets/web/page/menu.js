// The menu "⋯" in the header: how the view is shown, links and files, keys, and large type for a hall.

import { h, memory, popMenu, say } from "../base/dom.js";
import { change, inProjector, moves, projector, screen, state } from "./machine.js";
import { saveMenu } from "./save.js";
import { copyButton } from "../share/address.js";
import { linkTo, replayLink } from "../share/link.js";

const KEYS = ["step", "play", "phase", "guess", "live", "alternatives"];

// A switch in the menu; `set` is called with its state
const option = (key, set) =>
  h(
    "label.option",
    h("input", {
      type: "checkbox",
      "data-toggle": key,
      onchange: ({ target }) => set(target.checked),
    }),
    say(key),
  );

// Opens Gradio's description of the API. Its address ?view=api shows nothing, because Gradio loads the description only
// after a press on its footer's button; the footer has only this one.
const openApi = () => document.querySelector("footer button").click();

export function pageMenu() {
  const set = (name) => (value) => change({ [name]: value });
  const hall = h(
    "button.plain-button",
    {
      "data-action": "projector",
      "aria-pressed": "false",
      onclick: () => projector(!inProjector()),
    },
    say("projector"),
  );
  if (memory.get("jakiro-projector")) requestAnimationFrame(() => projector(true));
  const list = [
    hall,
    screen.server
      ? [
          copyButton("copy_link", () => linkTo(state)),
          copyButton("copy_replay", () => replayLink(state)),
        ]
      : null,
    saveMenu(),
    h(
      "fieldset.view-options",
      h("legend.muted", say("view_options")),
      option("guess_first", moves.guessFirst),
      option("no_marks", set("reading")),
      option("show_spaces", set("spaces")),
      option("as_written", (on) => set("formatted")(!on)),
      option("show_all", set("showAll")),
      option("read_as_list", set("list")),
    ),
    screen.server
      ? h("button.plain-button", { "data-action": "api", onclick: openApi }, say("api"))
      : null,
    h(
      "dl.keys",
      h("dt.muted", say("keys")),
      [...KEYS, ...(screen.server ? ["ask"] : [])].map((key) => h("dd", say(`key_${key}`))),
    ),
  ];
  return popMenu("page-menu", h("summary.plain-button", { "aria-label": say("menu") }, "⋯"), list);
}
