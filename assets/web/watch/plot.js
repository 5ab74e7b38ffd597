// Tokens over own seconds as stair lines, all lanes on one axis; or the smoothed speed.

import { rate, say } from "../base/dom.js";
import { metrics } from "../data/metrics.js";
import { moves, redrawNow } from "../page/machine.js";
import { fileName } from "../page/save.js";
import { Figure } from "../plots/figure.js";
import { plotStyle } from "../plots/template.js";

const MOST_POINTS = 500;
const GROWING_POINTS = 150; // while the answer is written, beside the model
const ROOM = 2; // times as long an axis becomes
const FIRST_SECONDS = 0.25; // before that a speed says little
const WIDE = 500; // pixels from which the legend has room for speeds
const MODES = { tokens: "plot_y", speed: "plot_rate" };

// Points of a lane's first steps; of many steps only every n-th
function points(lane, steps, { mode, growing }) {
  const every = Math.max(1, Math.ceil(steps / (growing ? GROWING_POINTS : MOST_POINTS)));
  const shown = [...lane.seconds.keys()].filter(
    (i) => i < steps && (i % every === 0 || i === steps - 1),
  );
  if (mode === "tokens")
    return {
      x: [0, ...shown.map((i) => lane.seconds[i])],
      y: [lane.lead, ...shown.map((i) => lane.counts[i])],
    };
  const telling = shown.filter((i) => lane.seconds[i] > FIRST_SECONDS);
  return {
    x: telling.map((i) => lane.seconds[i]),
    y: telling.map((i) => metrics.smoothSpeed(lane, i)),
  };
}

// Where an axis ends. While lines grow it leaves room for what comes, so that it seldom changes
const axisTo = (least, highest, { growing }) =>
  Math.max(
    least,
    growing ? least * ROOM ** Math.ceil(Math.log(highest / least) / Math.log(ROOM)) : highest,
  );

// The highest value of the y axis: it leaves room for all tokens of an answer, of which a playing time shows the first
function topOf(lines, shown) {
  const highest = ({ lane, found }) =>
    shown.mode === "tokens" ? lane.tokens.length : Math.max(0, ...found.y);
  return axisTo(8.8, 1.1 * Math.max(...lines.map(highest)), shown);
}

const heads = () => [say("table_lane"), say("plot_x"), say("plot_y"), say("plot_rate")];

export class Plot {
  constructor(host) {
    this.figure = new Figure(host, () => redrawNow());
    this.seen = true; // whether any of it is on screen
    new IntersectionObserver((changes) => {
      const before = this.seen;
      this.seen = changes.at(-1).isIntersecting;
      if (this.seen && !before) redrawNow();
    }).observe(host);
  }

  // `shown`: {time: what was there at this own-clock time, null for all; playhead: seconds or null; mode; growing: more comes soon}
  draw(run, shown) {
    const { mode, growing, playhead } = shown;
    // What the tree shows is drawn last, over the others
    const lanes = run
      ? [...run.ordered.filter((lane) => lane !== run.main), run.main].filter(Boolean)
      : [];
    const lines = lanes.map((lane) => {
      const steps = shown.time === null ? lane.steps.length : lane.stepsAt(shown.time);
      return { lane, role: run.roleOf(lane), steps, found: points(lane, steps, shown) };
    });
    const withSpeed = lines.length < 3 && !growing && this.figure.host.clientWidth >= WIDE;
    this.figure.draw({
      id: run && run.id,
      name: run?.main ? fileName(run, "speed") : "jakiro-speed",
      sentence: lines
        .map(({ lane, steps }) =>
          say("plot_table", {
            lane: lane.title,
            tokens: lane.countAfter(steps - 1),
            seconds: (lane.seconds[steps - 1] || 0).toFixed(1),
          }),
        )
        .join("; "),
      rows: () => [
        heads(),
        ...lines.flatMap(({ lane, steps }) =>
          lane.seconds
            .slice(0, steps)
            .map((seconds, i) => [
              lane.title,
              seconds,
              lane.counts[i],
              metrics.smoothSpeed(lane, i),
            ]),
        ),
      ],
      series: lines.map((line) => this.series(line, mode, withSpeed)),
      growing,
      margin: { left: 44 },
      x: {
        title: say("plot_x"),
        full: [0, axisTo(0.5, Math.max(...lanes.map((lane) => lane.clock)), shown)],
        ticks: { unifiedhovertitle: { text: "%{x:.2f} s" } },
      },
      y: { title: say(MODES[mode]), full: [0, topOf(lines, shown)] },
      // The step on screen
      shapes:
        growing || playhead === null
          ? []
          : [
              {
                type: "line",
                x0: playhead,
                x1: playhead,
                y0: 0,
                y1: 1,
                yref: "paper",
                line: { color: plotStyle.template().colours.ink, width: 1 },
              },
            ],
      pick: (x) => run && run.main && moves.seek(run.main.stepsAt(x)),
    });
  }

  series({ lane, role, steps, found }, mode, withSpeed) {
    const speed = withSpeed ? metrics.speed(lane, steps) : null;
    const words = mode === "tokens" ? "%{y} tokens" : "%{y:.0f} tokens/s";
    return {
      name: speed === null ? lane.title : `${lane.title}  ${rate(speed)} tokens/s`,
      traces: [
        {
          ...found,
          mode: "lines",
          hovertemplate: `${plotStyle.plotText(lane.title)}: ${words}<extra></extra>`,
          line: {
            ...plotStyle.lineOf(role),
            shape: mode === "tokens" && !lane.isPlain ? "hv" : "linear",
          },
        },
      ],
    };
  }
}
