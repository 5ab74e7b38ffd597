// The model's state as the server tells it, with the numerics that the settings ask for; and whether there is a server.

import { h, say, setText } from "../base/dom.js";
import { hasRead, notify, statusOf } from "../base/server.js";
import { asksFast, byName, fillForm, formIs, openWith } from "./form.js";
import { redraw } from "./machine.js";

const LOADING_LOOK_MS = 700;
const IDLE_LOOK_MS = 8000;
const SLOWER = 1.3;

class Chip {
  constructor() {
    this.element = h("span.chip.loading", { role: "status", id: "jk-chip" }, say("loading"));
    this.told = "";
    this.ready = new Promise((tell) => (this.tellReady = tell)); // of {target, dtype}
  }

  // Looks again, ever later while nothing changes
  async look() {
    clearTimeout(this.timer);
    if (!document.hidden || !this.value) {
      // The browser's own flag has no meaning for a server on this machine
      const status = await statusOf();
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
    this.pause = settled
      ? IDLE_LOOK_MS
      : text === this.before
        ? Math.min(IDLE_LOOK_MS, this.pause * SLOWER)
        : LOADING_LOOK_MS;
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
    setText(this.element, text);
    this.element.title = value.pair
      ? say("chip_about", { title: value.title, size: value.size || "" })
      : value.title || "";
    const told = JSON.stringify([
      value.state === "failed" && value.title,
      value.trouble,
      value.notice,
    ]);
    if (told === this.told) return;
    this.told = told;
    if (value.state === "failed" || value.trouble) notify("error", value.trouble || value.title);
    else if (value.notice && !hasRead(value.notice)) {
      const { recommended = {} } = value;
      const use = Object.keys(recommended).length ? () => useSettings(recommended) : null;
      notify("notice", value.notice, use, "recommended");
    }
  }
}

// Sampling settings by the server's names
const useSettings = (values) =>
  fillForm(
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name.replaceAll("_", "-"), value]),
    ),
  );

export const chip = new Chip();

export function settingsChanged(names, values) {
  formIs(byName(names, values));
  if (chip.value) chip.draw(chip.value);
  redraw();
}

addEventListener("offline", () => chip.look());
addEventListener("online", () => chip.look());

// Returns whether the server answers; requests it again only if the last request failed
export async function serverIsThere() {
  if (chip.lost) await chip.look();
  return !chip.lost;
}
