// The replay bar: play, one step back and on, one bar per step as high as its tokens, and the pace.

import { h, radios, s, say, setText } from "../base/dom.js";
import { PACES, moves, state } from "../page/machine.js";

export class Scrubber {
  constructor(host) {
    this.host = host;
    const button = (key, sign, action, kind = "icon-button") =>
      h(
        "button",
        {
          class: kind,
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
    this.past = s("path.past");
    this.steps = s("path");
    this.current = s("path.current");
    this.bars = s(
      "svg.bars",
      { preserveAspectRatio: "none", "aria-hidden": "true" },
      this.steps,
      this.past,
      this.current,
    );
    this.where = h("span.where.tabular");
    this.live = h("button.live-button", { onclick: moves.follow });
    this.playButton = button("play", "▶", () => moves.play(), "play-button primary");
    this.paces = radios(
      "pace",
      say("pace"),
      PACES.map((pace) => [pace, say(`pace_${pace}`)]),
      moves.setPace,
    );
    host.append(
      this.playButton,
      button("previous_step", "‹", () => moves.seek(state.index - 1)),
      button("next_step", "›", () => moves.seek(state.index + 1)),
      this.where,
      h("div.track", this.bars, this.range),
      this.live,
      this.paces.element,
    );
  }

  draw(now) {
    const { main, index, live, follow, playing } = now;
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
    this.paces.element.hidden = live || now.tab === "race";
    setText(this.live, say(follow ? "live" : "back_to_live"));
    this.live.classList.toggle("following", follow);
    const runs = playing || (live && follow);
    setText(this.playButton, runs ? "❚❚" : "▶");
    this.playButton.title = this.playButton.ariaLabel = say(runs ? "pause" : "play");
    this.paces.mark(now.pace);
    this.drawBars(main, index);
  }

  // One path for all bars: with an element per bar, each new one would make the browser lay out all of them again
  drawBars(lane, index) {
    const most = lane ? Math.max(2, lane.deepest + 1) : 2;
    const bar = (i) => {
      const tokens = Math.min(most, lane.steps[i].committed_ids.length);
      return `M${i + 0.08},${most}v${-tokens}h0.84v${tokens}z`;
    };
    if (this.lane !== lane || this.most !== most)
      Object.assign(this, { lane, most, outline: "", numDrawn: 0, ends: [0] });
    for (; this.numDrawn < this.count; this.numDrawn += 1) {
      this.outline += bar(this.numDrawn);
      this.ends.push(this.outline.length);
    }
    this.steps.setAttribute("d", this.outline);
    this.past.setAttribute("d", this.outline.slice(0, this.ends[Math.min(index, this.count)]));
    this.bars.setAttribute("viewBox", `0 0 ${Math.max(this.count, 1)} ${most}`);
    this.current.setAttribute("d", index < this.count ? bar(index) : "");
  }
}
