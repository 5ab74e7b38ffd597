// Playing: under both columns a strip with one bar a step, as high as tokens were kept; above the tree a button with its pace.

import { h, radios, s, say, setText } from "../base/dom.js";
import { PACES, moves, state } from "../page/machine.js";

export class Scrubber {
  constructor(host, watchHost) {
    const button = (key, sign, action) =>
      h(
        "button",
        {
          class: "icon-button",
          title: say(key),
          "aria-label": say(key),
          onclick: action,
          "data-action": key,
        },
        sign,
      );
    this.range = h("input", {
      type: "range",
      min: 0,
      max: 0,
      value: 0,
      step: 1,
      "aria-label": say("step_slider"),
      id: "jk-step",
      oninput: () => moves.seek(Number(this.range.value)),
    });
    this.steps = s("path");
    this.current = s("path", { class: "current" });
    this.bars = s(
      "svg",
      { class: "bars", preserveAspectRatio: "none", "aria-hidden": "true" },
      this.steps,
      this.current,
    );
    this.where = h("span", { class: "where tabular" });
    this.live = h("button", { class: "live-button", onclick: moves.follow });
    this.playButton = button("play", "▶", () => moves.play());
    host.append(
      h(
        "div",
        { class: "scrub-buttons" },
        button("previous_step", "‹", () => moves.seek(state.index - 1)),
        this.playButton,
        button("next_step", "›", () => moves.seek(state.index + 1)),
      ),
      h("div", { class: "track" }, this.bars, this.range),
      h("div", { class: "scrub-words" }, this.where, this.live),
    );
    this.watch = h("button", {
      class: "primary watch-button",
      "data-action": "watch",
      onclick: () => moves.play(),
    });
    this.paces = radios(
      "pace",
      say("pace"),
      PACES.map((pace) => [pace, say(`pace_${pace}`)]),
      moves.setPace,
    );
    this.watchLine = h("div", { class: "watch-line" }, this.watch, this.paces.element);
    watchHost.append(this.watchLine);
  }

  draw(now) {
    const { main, index, live, follow, playing, step } = now;
    this.count = main ? main.steps.length : 0;
    this.range.max = Math.max(0, this.count - 1);
    this.range.value = index;
    this.range.disabled = !this.count;
    const position = this.count ? say("step_of", { step: index + 1, steps: this.count }) : "";
    setText(
      this.where,
      live && !follow
        ? say("paused", { step: index + 1, newer: this.count - 1 - index })
        : position,
    );
    this.range.setAttribute("aria-valuetext", position);
    this.live.hidden = !live;
    setText(this.live, say(follow ? "live" : "back_to_live"));
    this.live.classList.toggle("following", follow);
    const runs = playing || (live && follow);
    setText(this.playButton, runs ? "❚❚" : "▶");
    this.playButton.title = this.playButton.ariaLabel = say(runs ? "pause" : "play");
    this.watchLine.hidden = !step || live;
    setText(this.watch, playing ? `❚❚ ${say("pause")}` : `▶ ${say("watch_it")}`);
    this.paces.mark(now.pace);
    this.drawBars(main, index);
  }

  // One path for all bars: a browser lays out an element for each of many once more whenever one is added
  drawBars(lane, index) {
    const most = lane ? Math.max(2, lane.deepest + 1) : 2;
    const bar = (i) => {
      const kept = Math.min(most, lane.steps[i].committed_ids.length);
      return `M${i + 0.08},${most}v${-kept}h0.84v${kept}z`;
    };
    if (this.lane !== lane || this.most !== most)
      Object.assign(this, { lane, most, outline: "", numDrawn: 0 });
    for (; this.numDrawn < this.count; this.numDrawn += 1) this.outline += bar(this.numDrawn);
    this.steps.setAttribute("d", this.outline);
    this.bars.setAttribute("viewBox", `0 0 ${Math.max(this.count, 1)} ${most}`);
    this.current.setAttribute("d", index < this.count ? bar(index) : "");
  }
}
