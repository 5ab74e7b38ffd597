// The top of the page: name, one sentence, model status, tabs, and the one place where errors are shown.

import { guardAsking, statusOf } from "../base/connection.js";
import { h, s, say } from "../base/dom.js";
import { isWalking } from "../base/keys.js";
import { asksFast, openWith } from "./settings.js";
import { setTab } from "./view.js";

// Each tab with its drawing, for screens on which five words have no room
const TABS = { watch: "M1 8q7-9 14 0q-7 9-14 0zM6 8a2 2 0 1 0 4 0a2 2 0 1 0-4 0", race: "M1 4h9M1 12h14M10 1l3 3l-3 3", lesson: "M8 4q-3-2-7-1v10q4-1 7 1q3-2 7-1v-10q-4-1-7 1zv10",
  recordings: "M2 8a6 6 0 1 0 12 0a6 6 0 1 0-12 0M7 6l3 2l-3 2z", benchmark: "M2 14v-6M8 14v-12M14 14v-8" };
let notice = null;
let early = null; // what was said before there was a place for it

// One sentence above the question row, with a button where `again` tries it anew; null clears it
export function notify(kind, text, again) {
  early = [kind, text, again];
  if (!notice) return;
  notice.hidden = !kind;
  notice.className = `notice ${kind || ""}`;
  notice.replaceChildren(...(kind ? [h("b", null, kind === "error" ? `⚠ ${say("error_word")}` : say("notice_word")), ` ${text} `,
    again ? h("button", { class: "link-button", "data-action": "retry", onclick: () => { notify(null); again(); } }, say("retry")) : null].filter(Boolean) : []));
}

function tabStrip(tabs) {
  const buttons = tabs.map((tab) => h("button", { role: "tab", "data-tab": tab, "aria-selected": String(tab === "watch"),
    onclick: () => setTab(tab, true) }, s("svg", { class: "tab-icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: TABS[tab] })),
  h("span", { class: "tab-word" }, say(`tab_${tab}`))));
  const strip = h("div", { class: "tabs", role: "tablist" }, buttons);
  strip.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!move || at < 0 || !isWalking()) return; // after a click the arrows step through the answer
    const next = buttons[(at + move + buttons.length) % buttons.length];
    next.focus();
    next.click();
  });
  new MutationObserver(() => buttons.forEach((button) => button.setAttribute("aria-selected",
    String(button.dataset.tab === document.body.dataset.jakiroTab)))).observe(document.body, { attributeFilter: ["data-jakiro-tab"] });
  return strip;
}

// The top of a saved replay page: no model, no settings
export function mountReplayTop(element, tabs) {
  element.querySelector(".jk-top").append(h("header", { class: "jk-header" }, h("h1", null, say("title")),
    h("p", { class: "muted" }, say("tagline")), h("span", { class: "gap" })), tabStrip(tabs));
}

const LOADING_LOOK_MS = 700;
const IDLE_LOOK_MS = 8000;
const SLOWER = 1.3;

// The model's state as the server tells it, with the numerics that the settings ask for
class Chip {
  constructor() {
    this.element = h("span", { class: "chip loading", role: "status", id: "jk-chip" }, say("loading"));
    this.told = "";
    this.ready = new Promise((tell) => (this.tellReady = tell)); // of {target, dtype}
  }

  // Looks again, ever later while nothing changes
  async look() {
    clearTimeout(this.timer);
    if (!document.hidden || !this.value) {
      const status = navigator.onLine ? await statusOf() : null;
      this.lost = !status;
      if (status) this.draw(status.chip);
      else {
        this.told = "";
        this.element.className = "chip failed";
        this.element.textContent = say("chip_lost");
      }
    }
    const text = this.element.textContent;
    const settled = !this.lost && this.value?.state !== "loading";
    this.pause = settled ? IDLE_LOOK_MS : text === this.before ? Math.min(IDLE_LOOK_MS, this.pause * SLOWER) : LOADING_LOOK_MS;
    this.before = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), this.pause);
  }

  draw(value) {
    this.value = value;
    if (value.state === "ready") {
      this.tellReady(value);
      openWith({ numerics: value.numerics, length: value.length });
      const choice = document.getElementById("numerics");
      if (choice) choice.style.display = value.fast ? "" : "none";
    }
    this.element.className = `chip ${value.state}`;
    const text = asksFast() && value.fast ? value.fast : value.text;
    if (this.element.textContent !== text) this.element.textContent = text;
    this.element.title = value.pair ? say("chip_about", { title: value.title, size: value.size || "" }) : value.title || "";
    const told = JSON.stringify([value.state === "failed" && value.title, value.trouble, value.notice]);
    if (told === this.told) return;
    this.told = told;
    if (value.state === "failed" || value.trouble) notify("error", value.trouble || value.title);
    else if (value.notice) notify("notice", value.notice);
  }
}

// The drawer of settings, which closes with the same button, its own, and Escape
export function toggleSettings(open) {
  const drawer = document.querySelector("#settings");
  const now = drawer.classList.toggle("open", open);
  document.querySelector("#jk-settings").setAttribute("aria-expanded", String(now));
  if (now) drawer.querySelector("input")?.focus();
  else document.querySelector("#jk-settings").focus();
}

addEventListener("keydown", (event) => event.key === "Escape" && event.target.closest?.("#settings.open") && toggleSettings(false));

export function mountTop(element) {
  const root = element.querySelector(".jk-top");
  const chip = new Chip();
  Jakiro.chip = chip;
  const settings = h("button", { class: "plain-button", id: "jk-settings", "aria-expanded": "false", onclick: () => toggleSettings() }, say("settings"));
  notice = h("div", { class: "notice", role: "alert", hidden: true, id: "jk-notice" });
  root.append(
    h("a", { class: "skip", href: "#jk-answer" }, say("skip")),
    h("header", { class: "jk-header" }, h("h1", null, say("title")), h("p", { class: "muted" }, say("tagline")),
      h("span", { class: "gap" }), chip.element, settings),
    tabStrip(Object.keys(TABS)), notice);
  if (early) notify(...early);
  chip.look();
  guardAsking();
}
