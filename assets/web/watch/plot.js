// Tokens over own seconds as stair lines, all lanes on one axis; or the smoothed speed.

import { apart, number, rate, say, table, watchSeen } from "../base/dom.js";
import { metrics } from "../data/metrics.js";
import { moves, redrawNow } from "../page/machine.js";
import { fileName } from "../page/save.js";
import { Figure } from "../plots/figure.js";
import { plotStyle } from "../plots/template.js";

const MOST_POINTS = 500;
const GROWING_POINTS = 150; // while the answer is written, beside the model
const ROOM = 1.5; // times as long an axis becomes
const FIRST_SECONDS = 0.25; // before that a speed says little
const MOST_ROWS = 12; // of each lane, in the table
const MODES = { tokens: "plot_y", speed: "plot_rate" };

// Points of a lane's first steps; of many steps only every n-th
function points(lane, steps, { mode, growing }) {
  const found = { x: [], y: [] };
  const add = (x, y) => {
    found.x.push(x);
    found.y.push(y);
  };
  if (mode === "tokens") add(0, lane.lead);
  const every = Math.max(1, Math.ceil(steps / (growing ? GROWING_POINTS : MOST_POINTS)));
  for (let i = 0; i < steps; i += 1) {
    if (i % every && i !== steps - 1) continue;
    if (mode === "tokens") add(lane.seconds[i], lane.counts[i]);
    else if (lane.seconds[i] > FIRST_SECONDS) add(lane.seconds[i], metrics.smoothSpeed(lane, i));
  }
  return found;
}

// Where an axis ends. While lines grow it leaves room for what comes, so that it seldom changes
function axisTo(least, highest, { growing }) {
  const end = Math.max(least, highest);
  return growing ? least * ROOM ** Math.ceil(Math.log(end / least) / Math.log(ROOM)) : end;
}

// The highest value of the y axis
function topOf(lines, shown) {
  const highest = ({ lane, steps }) => (shown.mode === "tokens" ? lane.tokens.length : Math.max(0, ...points(lane, steps, shown).y));
  return axisTo(8.8, 1.1 * Math.max(...lines.map(highest)), shown);
}

// Tokens and speed of each lane at a few moments of its own clock; `lines` holds {lane, steps}
function plotTable(lines, caption) {
  const rows = lines.flatMap(({ lane, steps }) => {
    const every = Math.max(1, Math.ceil(steps / MOST_ROWS));
    const picked = Array.from({ length: steps }, (_, i) => i).filter((i) => i === steps - 1 || i % every === every - 1);
    return picked.map((i) => [lane.title, number(lane.seconds[i], 1), String(lane.counts[i]),
      rate(metrics.smoothSpeed(lane, i))]);
  });
  return table(caption, [say("table_lane"), say("plot_x"), say("plot_y"), say("plot_rate")], rows);
}

export class Plot {
  constructor(host) {
    this.figure = new Figure(host, () => redrawNow());
    this.seen = true; // whether any of it is on screen
    watchSeen(host, (seen) => {
      const before = this.seen;
      this.seen = seen;
      if (seen && !before) redrawNow();
    });
  }

  // `shown`: {time: only what was there at this own-clock time, or null; playhead: seconds or null; mode; bracket;
  // growing: whether more of it comes soon}
  draw(run, shown) {
    const { mode } = shown;
    // What the tree shows is drawn last, over the others
    const lanes = run ? [...run.ordered.filter((lane) => lane !== run.main), run.main].filter(Boolean) : [];
    const lines = lanes.map((lane) => ({ lane, role: run.roleOf(lane),
      steps: shown.time === null ? lane.steps.length : lane.stepsAt(shown.time) }));
    this.figure.draw({
      id: run && run.id, name: run?.main ? fileName(run, "speed") : "jakiro-speed",
      sentence: this.sentence(lines),
      table: () => plotTable(lines, this.sentence(lines)),
      rows: () => this.rows(lines),
      series: lines.map((line) => this.series(line, shown)),
      growing: shown.growing,
      labelled: lines.length < 3 && !shown.growing,
      margin: { left: 44 },
      x: { title: say("plot_x"), full: [0, axisTo(0.5, Math.max(...lanes.map((lane) => lane.clock)), shown)],
        ticks: { unifiedhovertitle: { text: "%{x:.2f} s" } } },
      y: { title: say(MODES[mode]), full: [0, topOf(lines, shown)] },
      ...this.marks(run, lines, shown),
      pick: (x) => run && run.main && moves.seek(run.main.stepsAt(x)),
    });
  }

  series({ lane, role, steps }, shown) {
    const words = shown.mode === "tokens" ? "%{y} tokens" : "%{y:.0f} tokens/s";
    return { name: lane.title, traces: () => [{ ...points(lane, steps, shown), mode: "lines", hovertemplate: `%{fullData.name}: ${words}<extra></extra>`,
        line: { ...plotStyle.lineOf(role), shape: shown.mode === "tokens" && !lane.isPlain ? "hv" : "linear" } }] };
  }

  sentence(lines) {
    return lines.map(({ lane, steps }) => say("plot_table", { lane: lane.title,
      tokens: lane.countAfter(steps - 1), seconds: (lane.seconds[steps - 1] || 0).toFixed(1) })).join("; ");
  }

  rows(lines) {
    const rows = [["method", "step", "seconds", "tokens", "tokens_per_second_last_2s"]];
    for (const { lane, steps } of lines) {
      for (let i = 0; i < steps; i += 1) rows.push([lane.method, i, lane.seconds[i], lane.counts[i], metrics.smoothSpeed(lane, i)]);
    }
    return rows;
  }

  // The step on screen, and in the race the gap between the lanes at the last token both have
  marks(run, lines, { playhead, bracket, mode, growing }) {
    if (growing) return {};
    const { colours, scale } = plotStyle.template();
    const shapes = playhead === null ? [] : [{ type: "line", x0: playhead, x1: playhead, y0: 0, y1: 1, yref: "paper",
      line: { color: colours.ink, width: 1 } }];
    const gap = bracket && mode === "tokens" && run && this.gap(run, lines);
    const labels = lines.length < 3 ? this.labels(lines, mode) : [];
    if (!gap) return { shapes, notes: labels };
    const line = { color: colours.ink, width: 1.5 };
    const ends = [gap.from, gap.to].map((x) => ({ type: "line", x0: x, x1: x, xref: "x", yref: "y", ysizemode: "pixel", yanchor: gap.at,
      y0: -5, y1: 5, line }));
    const words = { text: plotStyle.plotText(apart(gap.to - gap.from)), showarrow: false, x: (gap.from + gap.to) / 2, y: gap.at,
      yanchor: gap.open ? "bottom" : "top", yshift: gap.open ? 4 : -4, font: { color: colours.ink, size: 13 * scale } };
    return { shapes: [...shapes, ...ends, { type: "line", x0: gap.from, x1: gap.to, y0: gap.at, y1: gap.at, line }], notes: [words, ...labels] };
  }

  // Two lines are named where no line runs, once their speed is known: the upper one above its end, the other below
  // its middle, or beside its end while it is too low for that
  labels(lines, mode) {
    const { colours, scale } = plotStyle.template();
    const begun = lines.map((line) => ({ ...line, speed: metrics.speed(line.lane, line.steps) })).filter(({ speed }) => speed !== null);
    const common = Math.min(...begun.map(({ lane, steps }) => lane.seconds[steps - 1]));
    const upper = Math.max(...begun.map(({ lane }) => lane.countAt(common)));
    const [width, height] = [Math.max(...lines.map(({ lane }) => lane.clock)), Math.max(...lines.map(({ lane }) => lane.counts.at(-1) || 0))];
    return begun.map(({ lane, role, steps, speed }) => {
      const above = lane.countAt(common) === upper, middle = Math.floor((this.figure.host.clientWidth < 500 ? 0.25 : 0.6) * (steps - 1));
      const low = !above && mode === "tokens" && lane.counts[middle] < height / 5;
      const at = above || low ? steps - 1 : middle;
      const text = `${lane.title}  ${rate(speed)} tokens/s`;
      // Inside the plot, at whichever side of its point there is room
      const room = this.figure.host.clientWidth - 60 * scale, wide = 7.5 * scale * text.length;
      const x = (lane.seconds[at] / Math.max(0.5, width)) * room;
      const right = above && x >= wide;
      const over = right ? 0 : Math.max(0, x + wide - room);
      return { text: plotStyle.plotText(text), showarrow: false,
        x: lane.seconds[at], y: mode === "tokens" ? lane.counts[at] : metrics.smoothSpeed(lane, at),
        xanchor: right ? "right" : "left", xshift: (low && !right ? 6 : 0) - Math.min(over, x),
        yanchor: above ? "bottom" : low ? "middle" : "top", yshift: above ? 4 : low ? 0 : -4,
        font: { size: 14 * scale, color: colours[role === "main" ? "ink" : "muted"] } };
    });
  }

  gap(run, lines) {
    const [plain, main] = [run.plain, run.main].map((lane) => lines.find((line) => line.lane === lane));
    if (!plain || !main || plain === main) return null;
    const common = Math.min(plain.lane.countAfter(plain.steps - 1), main.lane.countAfter(main.steps - 1));
    if (common < metrics.FEWEST_TOKENS) return null;
    return { at: common, open: main.steps === main.lane.steps.length && main.lane.tokens.length === common,
      from: main.lane.secondsTo(common), to: plain.lane.secondsTo(common) };
  }
}
