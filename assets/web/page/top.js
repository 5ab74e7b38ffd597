// The top of the page: name, tabs, links and model status in one row, and below it the one place for errors.

import { h, isWalking, s, say } from "../base/dom.js";
import { notice } from "../base/server.js";
import { chip } from "./chip.js";
import { onTab, setTab } from "./machine.js";

// Each tab with its icon, for screens that are too narrow for five words
const TABS = {
  watch: "M1 8q7-9 14 0q-7 9-14 0zM6 8a2 2 0 1 0 4 0a2 2 0 1 0-4 0",
  race: "M1 4h9M1 12h14M10 1l3 3l-3 3",
  lesson: "M8 4q-3-2-7-1v10q4-1 7 1q3-2 7-1v-10q-4-1-7 1zv10",
  recordings: "M2 8a6 6 0 1 0 12 0a6 6 0 1 0-12 0M7 6l3 2l-3 2z",
  benchmark: "M2 14v-6M8 14v-12M14 14v-8",
};
function tabStrip(tabs) {
  const buttons = tabs.map((tab) =>
    h(
      "button",
      {
        role: "tab",
        "data-tab": tab,
        "aria-selected": String(tab === "watch"),
        onclick: () => setTab(tab, true),
      },
      s(
        "svg.tab-icon",
        { viewBox: "0 0 16 16", "aria-hidden": "true" },
        s("path", { d: TABS[tab] }),
      ),
      h("span.tab-word", say(`tab_${tab}`)),
    ),
  );
  const strip = h("div.tabs", { role: "tablist" }, buttons);
  strip.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!move || at < 0 || !isWalking()) return; // after a click the arrows step through the answer
    const next = buttons[(at + move + buttons.length) % buttons.length];
    next.focus();
    next.click();
  });
  onTab.push((now) =>
    buttons.forEach((button) =>
      button.setAttribute("aria-selected", String(button.dataset.tab === now)),
    ),
  );
  return strip;
}

const LINKS = {
  paper: "https://arxiv.org/abs/2502.06282",
  code: "https://github.com/haiduo/Jakiro",
};
const links = () =>
  h(
    "span.links",
    Object.entries(LINKS).map(([key, href]) =>
      h("a", { href, target: "_blank", rel: "noreferrer", title: say(`${key}_about`) }, say(key)),
    ),
  );

// The two experts' marks
const brandMark = () =>
  s(
    "svg.brand-mark",
    { viewBox: "0 0 26 18", "aria-hidden": "true" },
    s("circle.hue-0.marker", { cx: 7.5, cy: 9, r: 6.5 }),
    s("rect.hue-1.marker", { x: 13, y: 3, width: 12, height: 12, rx: 1.5 }),
  );

const header = (tabs, ...more) =>
  h(
    "header.jk-header",
    brandMark(),
    h("h1", say("title")),
    h("p.tagline.muted", say("tagline")),
    tabStrip(tabs),
    h("span.gap"),
    links(),
    more,
  );

// The top of a saved replay page: no model, no settings
export const mountReplayTop = (element, tabs) =>
  element.querySelector(".jk-top").append(header(tabs));

// The drawer of settings is a popover, once the form is there
export const toggleSettings = (open) => document.querySelector("#settings").togglePopover(open);

// Opens the drawer at a field
export function openSetting(field) {
  toggleSettings(true);
  document.querySelector(`#${field} input`)?.focus();
}

// Called by Gradio: moves to a group of settings
export function openGroup(name) {
  const heading = document.querySelector(`#group-${name} h3`);
  heading.tabIndex = -1;
  heading.focus();
  heading.scrollIntoView();
}

export function mountTop(element) {
  const settings = h(
    "button.plain-button",
    { id: "jk-settings", popovertarget: "settings" },
    say("settings"),
  );
  element
    .querySelector(".jk-top")
    .append(
      h("a.skip", { href: "#jk-answer" }, say("skip")),
      header(Object.keys(TABS), chip.element, settings),
      notice,
    );
  document.documentElement.lang = "en"; // Gradio sets the browser's language, but the text is English
  chip.look();
}
