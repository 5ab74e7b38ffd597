// One line under both columns: a strip with one bar per step (height = tokens kept), a handle over it, and playing.

import { h, s, say } from "../base/dom.js";

export class Scrubber {
  // `on`: {seek(step), follow(), play()}
  constructor(host, on) {
    const button = (key, sign, action) => h("button", { class: "icon-button", title: say(key), "aria-label": say(key),
      onclick: action, "data-action": key }, sign);
    this.range = h("input", { type: "range", min: 0, max: 0, value: 0, step: 1, "aria-label": say("step_slider"),
      id: "jk-step", oninput: () => on.seek(Number(this.range.value)) });
    this.steps = s("path");
    this.current = s("path", { class: "current" });
    this.bars = s("svg", { class: "bars", preserveAspectRatio: "none", "aria-hidden": "true" }, this.steps, this.current);
    this.where = h("span", { class: "where tabular" });
    this.live = h("button", { class: "live-button", onclick: () => on.follow() });
    this.playButton = button("play", "▶", () => on.play());
    host.append(
      h("div", { class: "scrub-buttons" }, button("previous_step", "‹", () => on.seek(this.index - 1)), this.playButton,
        button("next_step", "›", () => on.seek(this.index + 1))),
      h("div", { class: "track" }, this.bars, this.range),
      h("div", { class: "scrub-words" }, this.where, this.live));
    this.count = 0;
    this.index = 0;
  }

  draw(lane, state) {
    this.count = lane ? lane.steps.length : 0;
    this.index = state.index;
    this.range.max = Math.max(0, this.count - 1);
    this.range.value = state.index;
    this.range.disabled = !this.count;
    const position = this.count ? say("step_of", { step: state.index + 1, steps: this.count }) : "";
    const newer = this.count - 1 - state.index;
    const paused = state.live && !state.follow;
    this.where.textContent = paused ? say("paused", { step: state.index + 1, newer }) : position;
    this.range.setAttribute("aria-valuetext", position);
    this.live.hidden = !state.live;
    this.live.textContent = say(state.follow ? "live" : "back_to_live");
    this.live.classList.toggle("following", state.follow);
    this.playButton.textContent = state.playing ? "❚❚" : "▶";
    const name = say(state.playing ? "pause" : "play");
    this.playButton.title = name;
    this.playButton.setAttribute("aria-label", name);
    this.drawBars(lane, state);
  }

  // One path for all bars: a browser lays out an element for each of many once more whenever one is added
  drawBars(lane, state) {
    const most = lane ? Math.max(2, lane.deepest + 1) : 2;
    const bar = (i) => {
      const kept = Math.min(most, lane.steps[i].committed_ids.length);
      return `M${i + 0.08},${most}v${-kept}h0.84v${kept}z`;
    };
    if (this.lane !== lane || this.most !== most) Object.assign(this, { lane, most, outline: "", numDrawn: 0 });
    for (; this.numDrawn < this.count; this.numDrawn += 1) this.outline += bar(this.numDrawn);
    this.steps.setAttribute("d", this.outline);
    this.bars.setAttribute("viewBox", `0 0 ${Math.max(this.count, 1)} ${most}`);
    this.current.setAttribute("d", state.index < this.count ? bar(state.index) : "");
  }
}
