// The models and heads to choose from: each with a description, whether it works here or the reason, and a button that loads it.

import { h, say } from "../base/dom.js";
import { notify, orRetry } from "../base/server.js";
import { chip } from "./chip.js";
import { toggleSettings } from "./top.js";

const LOOK_MS = 1000;

let list = null;

// Opens the list of pairs
export function openPairs() {
  toggleSettings(true);
  list.element.open = true;
  list.element.firstChild.focus();
}

class PairList {
  constructor(server) {
    this.server = server;
    this.list = h("ul");
    this.hint = h("p.muted.small");
    this.progress = h("span.muted"); // of the pair that is on its way
    this.element = h(
      "details",
      { ontoggle: () => this.follow() },
      h("summary", say("pairs")),
      this.hint,
      this.list,
    );
  }

  // While it is open it follows the server's status
  async follow() {
    clearTimeout(this.timer);
    if (!this.element.open) return;
    const { pair, state, coming, cancellable, text } = chip.value || {};
    const key = JSON.stringify([pair, state, coming, cancellable]);
    if (key !== this.key) {
      await orRetry(async () => {
        this.draw(await this.server.pairs());
        this.key = key;
      });
    }
    this.progress.textContent = coming ? text : "";
    this.timer = setTimeout(() => this.follow(), LOOK_MS);
  }

  draw({ pairs, locked }) {
    this.hint.textContent = locked || say("pairs_hint");
    this.list.replaceChildren(...pairs.map((pair) => this.line(pair, Boolean(locked))));
  }

  line(pair, locked) {
    const { value } = chip;
    const loaded = Boolean(value && value.pair === pair.name);
    const busy = !value || value.state === "loading";
    const button = h(
      "button.plain-button",
      {
        "data-pair": pair.name,
        onclick: ({ target }) => this.confirm(pair, target.closest("li")),
        disabled: locked || busy || !pair.fits || loaded,
      },
      say(loaded ? "pair_loaded" : "pair_load"),
    );
    return h(
      "li",
      { class: loaded ? "loaded" : "", "data-state": pair.state },
      h("div.pair-head", h("b", pair.name), button),
      pair.fusion ? h("span.muted", say("pair_fusion", { fusion: pair.fusion })) : null,
      h("div.muted", pair.reason),
      value?.coming === pair.name ? this.coming(locked) : null,
      pair.size ? h("div.muted", pair.size) : null,
    );
  }

  // How far a pair has come, and a way to end its download
  coming(locked) {
    const cancel = h(
      "button.plain-button",
      {
        "data-action": "cancel_fetch",
        onclick: async () => {
          cancel.disabled = true;
          await orRetry(() => this.server.cancel());
          await chip.look();
        },
      },
      say("pair_cancel_fetch"),
    );
    return h("div.pair-head", this.progress, chip.value.cancellable && !locked ? cancel : null);
  }

  // Confirmation before loading: the cost, and that it affects every visitor
  confirm(pair, line) {
    const sure = h(
      "button.plain-button",
      {
        autofocus: true,
        "data-confirm": pair.name,
        onclick: () => this.choose(pair.name, sure),
      },
      say("pair_confirm"),
    );
    const box = h(
      "div.pair-sure",
      {
        popover: "auto",
        role: "alertdialog",
        "aria-label": say("pair_confirm"),
        ontoggle: ({ newState }) => newState === "closed" && box.remove(),
      },
      h(
        "p",
        say("pair_sure", { size: pair.size, loaded: chip.value?.pair || say("pair_nothing") }),
      ),
      h(
        "div.pair-head",
        sure,
        h("button.plain-button", { onclick: () => box.hidePopover() }, say("pair_cancel")),
      ),
    );
    line.append(box);
    box.showPopover();
  }

  async choose(name, button) {
    button.disabled = true;
    notify(null);
    const refusal = await orRetry(() => this.server.choose_pair(name));
    if (refusal) notify("error", refusal);
    await chip.look();
  }
}

export function mountPairs(element, server) {
  list = new PairList(server);
  element.querySelector(".jk-pairs").append(list.element);
}
