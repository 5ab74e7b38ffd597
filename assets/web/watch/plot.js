// Tokens over own seconds as stair lines, all lanes on one axis; or the smoothed speed.

import { apart, clockOf, number, pageScale, say } from "../base/dom.js";
import { metrics } from "../data/metrics.js";
import { moves, redrawNow } from "../page/machine.js";
import { fileName } from "../page/save.js";
import { Figure } from "../plots/figure.js";
import { shownSteps, tokenPoints } from "../plots/speed.js";
import { plotStyle } from "../plots/template.js";

const GROWING_POINTS = 150; // while the answer is written, because the model may compute on the same cores
const ROOM = 2; // times as long an axis becomes
const FIRST_SECONDS = 0.25; // earlier speeds have little meaning
const NARROW = 430; // pixels
const MARGIN = { left: 40, right: 18, top: 30, bottom: 26 };
const NAME_SIZE = 13.5;
const GAP = 3; // pixels between a line and its name
const FACTOR_SIZE = 34;
// Places along a line where its name is tried, best first
const PLACES = [0.72, 0.6, 0.82, 0.5, 0.4, 0.9, 1, 0.3, 0.2, 0.14];
const MODES = { tokens: "plot_y", speed: "plot_rate" };

// Points of a lane's first steps
function points(lane, steps, { mode, growing }) {
  const shown = shownSteps(steps, growing ? GROWING_POINTS : undefined);
  if (mode === "tokens") return tokenPoints(lane, shown);
  const telling = shown.filter((i) => lane.seconds[i] > FIRST_SECONDS);
  return {
    x: telling.map((i) => lane.seconds[i]),
    y: telling.map((i) => metrics.smoothSpeed(lane, i)),
  };
}

// End of an axis. While lines grow it has spare space, so that it seldom changes
const axisTo = (least, highest, { growing }) =>
  Math.max(
    least,
    growing ? least * ROOM ** Math.ceil(Math.log(highest / least) / Math.log(ROOM)) : highest,
  );

// The maximum of the y axis: all tokens of an answer, also if a playing time shows only the first ones
function topOf(lines, shown) {
  const highest = ({ lane, found }) =>
    shown.mode === "tokens" ? lane.tokens.length : Math.max(0, ...found.y);
  return axisTo(8.8, 1.1 * Math.max(...lines.map(highest)), shown);
}

const note = (text, { bold, ...look }) => ({
  text: bold ? `<b>${plotStyle.plotText(text)}</b>` : plotStyle.plotText(text),
  showarrow: false,
  borderpad: 0,
  ...look,
});

const heads = () => [say("table_lane"), say("plot_x"), say("plot_y"), say("plot_rate")];

const measuring = document.createElement("canvas").getContext("2d");

// The area between two lines, up to the end of the longer one
function between({ x, y }, other) {
  const end = Math.max(x.at(-1), other.x.at(-1));
  const back = pointsOf(other).reverse();
  return [...stairs({ x, y }), [end, y.at(-1)], [end, other.y.at(-1)], ...back];
}

const pointsOf = ({ x, y }) => x.map((value, i) => [value, y[i]]);
const stairs = ({ x, y }) =>
  x.flatMap((value, i) => [
    [value, y[Math.max(0, i - 1)]],
    [value, y[i]],
  ]);

const overlap = (a, b) =>
  a.left < b.right && a.right > b.left && a.top < b.bottom && a.bottom > b.top;

// Whether a line with these corners is drawn through a box
const crosses = (corners, box) =>
  corners.some(({ x: right, y }, i) => {
    const { x: left, y: before } = corners[Math.max(0, i - 1)];
    return overlap({ left, right, top: Math.min(y, before), bottom: Math.max(y, before) }, box);
  });

// Whether the name of a line is below it: the lane of the tree is above the others, unless it is slower
const isBelow = (role, speedup) => (role !== "main") !== (speedup !== null && speedup < 1);

const rowsOf = (lines) => [
  heads(),
  ...lines.flatMap(({ lane, steps }) =>
    lane.seconds
      .slice(0, steps)
      .map((seconds, i) => [lane.title, seconds, lane.counts[i], metrics.smoothSpeed(lane, i)]),
  ),
];

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

  // `shown`: {time: seconds of each lane's own clock up to which lines are drawn, null for all; playhead: seconds or null; mode;
  // growing: whether it is redrawn soon; race: the seconds saved instead of the factor}
  draw(run, shown) {
    const { mode, growing } = shown;
    // The lane of the tree is drawn last, over the others
    const lanes = run
      ? [...run.ordered.filter((lane) => lane !== run.main), run.main].filter(Boolean)
      : [];
    const lines = lanes.map((lane) => {
      const steps = shown.time === null ? lane.steps.length : lane.stepsAt(shown.time);
      return { lane, role: run.roleOf(lane), steps, found: points(lane, steps, shown) };
    });
    const [main, plain] = ["main", "plain"].map((role) => lines.find((line) => line.role === role));
    const pair = main && plain && main !== plain && mode === "tokens";
    const speedup = pair ? metrics.speedup(run.main, run.plain, main.steps) : null;
    const view = {
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
      rows: () => rowsOf(lines),
      series: lines.map((line) => this.series(line, mode, isBelow(line.role, speedup))),
      direct: true,
      area: pair && main.found.x.length > 1 ? between(main.found, plain.found) : undefined,
      growing,
      margin: MARGIN,
      x: {
        full: [0, axisTo(0.5, Math.max(...lanes.map((lane) => lane.clock)), shown)],
        ticks: { unifiedhovertitle: { text: "%{x:.2f} s" } },
      },
      y: { title: say(MODES[mode]), full: [0, topOf(lines, shown)] },
      pick: (x) => run && run.main && moves.seek(run.main.stepsAt(x)),
    };
    this.figure.view = view; // marks need positions before the figure is drawn
    Object.assign(view, this.marks(lines, { ...shown, speedup, main, plain, run }));
    // A legend names what has no place for its name
    view.direct = !view.unplaced;
    this.figure.draw(view);
  }

  // Names of the lines, the step on screen and the factor, each where it covers no other
  marks(lines, { growing, playhead, mode, speedup, main, plain, race, run, time }) {
    const { colours } = plotStyle.template();
    const scale = pageScale();
    const narrow = this.figure.room.clientWidth < NARROW * scale;
    const notes = [
      note(say(narrow ? "plot_seconds_short" : "plot_seconds"), {
        ...{
          xref: "paper",
          x: 1,
          xanchor: "right",
          xshift: 14, // over the second half of a last tick's label
          yref: "paper",
          y: 0,
          yanchor: "top",
          yshift: -3,
        },
        bgcolor: colours.page,
      }),
    ];
    if (growing || !lines.length) return { notes };
    const taken = [];
    const shapes = [];
    let unplaced = 0;
    const over = run.finished && time === null;
    if (speedup !== null && race && over) this.span({ main, plain, notes, shapes, colours });
    else if (speedup !== null && !race)
      this.factor({ main, plain, speedup, notes, taken, colours });
    if (playhead !== null)
      this.playhead({ playhead, main, plain, mode, notes, shapes, taken, colours });
    const playheadBox = playhead === null ? null : taken.at(-1);
    const placeOf = this.figure.placing();
    const drawn = lines.map(({ lane, found }) =>
      (mode === "tokens" && !lane.isPlain ? stairs : pointsOf)(found).map((point) =>
        placeOf(...point),
      ),
    );
    for (const { lane, found, role } of lines) {
      const preferred = isBelow(role, speedup);
      const named = say("plot_named", { lane: lane.title, seconds: clockOf(lane.clock) });
      const names = over ? [named, lane.title] : [lane.title];
      const places = [
        ...[preferred, !preferred].flatMap((below) =>
          names.map((words) => [words, below, taken, drawn]),
        ),
        [lane.title, preferred, taken, []],
        [lane.title, preferred, taken.filter((box) => box !== playheadBox), []],
      ];
      let place = null;
      for (const tried of places) place ??= this.freePlace(found, ...tried);
      if (!place) {
        unplaced += 1;
        continue;
      }
      const { words, below, box, x, y } = place;
      taken.push(box);
      notes.push(
        note(words, {
          x,
          y,
          xanchor: below ? "left" : "right",
          yanchor: below ? "top" : "bottom",
          xshift: below ? 8 : -8,
          yshift: below ? -GAP : GAP,
          font: { size: NAME_SIZE * scale, color: role === "main" ? colours.ink : colours.muted },
          bold: role === "main",
        }),
      );
    }
    return { notes, shapes, unplaced };
  }

  // Where a name covers neither the `taken` boxes nor the lines in `drawn`; null if it always does
  freePlace({ x, y }, words, below, taken, drawn) {
    measuring.font = `600 ${NAME_SIZE * pageScale()}px sans-serif`;
    const wide = measuring.measureText(words).width + 12;
    const tall = 1.5 * NAME_SIZE * pageScale();
    for (const part of PLACES) {
      const i = Math.floor((x.length - 1) * part);
      const { x: across, y: up, ...room } = this.figure.placeOf(x[i] ?? 0, y[i] ?? 0);
      const box = {
        left: below ? across + 6 : across - 6 - wide,
        right: below ? across + 6 + wide : across - 6,
        top: below ? up + GAP : up - GAP - tall,
        bottom: below ? up + GAP + tall : up - GAP,
      };
      const inside = box.left > room.left && box.right < room.right + 8 && box.bottom < room.bottom;
      if (!inside || box.top < room.top - tall || taken.some((other) => overlap(box, other)))
        continue;
      if (!drawn.some((corners) => crosses(corners, box)))
        return { x: x[i], y: y[i], words, below, box };
    }
    return null;
  }

  // One large number at the end of the lane's line, or over the start of the lines if it would cover one of them
  factor({ main, plain, speedup, notes, taken, colours }) {
    const size = FACTOR_SIZE * pageScale();
    const words = `${number(speedup, 1)}×`;
    measuring.font = `700 ${size}px sans-serif`;
    const wide = measuring.measureText(words).width + 16;
    const [seconds, tokens] = [main.found.x.at(-1), main.found.y.at(-1)];
    const { x, y, left, right, top } = this.figure.placeOf(seconds, tokens);
    const later = seconds + (wide * this.figure.view.x.full[1]) / (right - left);
    const under = this.figure.placeOf(0, plain.lane.countAt(later)).y;
    const centre = Math.max(top - 4, y);
    const beside =
      x + wide < right && plain.found.x.at(-1) >= seconds && under > centre + size * 0.6;
    const start = beside ? x : left + 10;
    const middle = beside ? centre : top + size * 0.6;
    taken.push({
      left: start,
      right: start + wide,
      top: middle - size * 0.6,
      bottom: middle + size * 0.6,
    });
    notes.push(
      note(words, {
        x: beside ? seconds : 0,
        y: tokens,
        xanchor: "left",
        xshift: 10,
        yanchor: "middle",
        yshift: y - middle,
        font: { size, color: colours.ink },
        bold: true,
      }),
    );
  }

  // How much sooner the lane was done than plain decoding
  span({ main, plain, notes, shapes, colours }) {
    const [from, to] = [main.lane.clock, plain.lane.clock].toSorted((a, b) => a - b);
    const y = main.found.y.at(-1) * 1.04;
    const line = { color: colours.ink, width: 1 };
    shapes.push({ type: "line", x0: from, x1: to, y0: y, y1: y, line });
    for (const x of [from, to])
      shapes.push({
        ...{ type: "line", ysizemode: "pixel", yanchor: y, x0: x, x1: x, y0: -5, y1: 5 },
        line,
      });
    const sooner = main.lane.clock <= plain.lane.clock ? "plot_sooner" : "plot_later";
    notes.push(
      note(say(sooner, { seconds: apart(to - from) }), {
        x: (from + to) / 2,
        y,
        yanchor: "bottom",
        font: { size: 14 * pageScale(), color: colours.ink },
        bold: true,
      }),
    );
  }

  // The step on screen: how many tokens each line had at its end
  playhead({ playhead, main, plain, mode, notes, shapes, taken, colours }) {
    const line = { color: colours.ink, width: 1 };
    shapes.push({ type: "line", x0: playhead, x1: playhead, y0: 0, y1: 1, yref: "paper", line });
    const { x, left, right } = this.figure.placeOf(playhead, 0);
    const edge = x < left + 26 ? 1 : x > right - 26 ? -1 : 0; // there both numbers are on the inner side
    taken.push({ left: x - 26, right: x + 26, top: 0, bottom: this.figure.room.clientHeight });
    if (mode !== "tokens") return;
    const lanes = [...new Set([main?.lane, plain?.lane])].filter(Boolean);
    const counts = lanes.map((lane) => lane.countAt(playhead));
    lanes.forEach((lane, i) => {
      const tokens = counts[i];
      const isMain = lane === main?.lane;
      // The number of the higher line is above it, the other one is below
      const side = i === Number(counts[1] > counts[0]) ? -1 : 1;
      shapes.push({
        ...{
          type: "circle",
          xsizemode: "pixel",
          ysizemode: "pixel",
          xanchor: playhead,
          yanchor: tokens,
        },
        ...{ x0: -5, x1: 5, y0: -5, y1: 5 },
        fillcolor: isMain ? colours.ink : colours.page,
        line: { color: isMain ? colours.page : colours.muted, width: 2 },
      });
      notes.push(
        note(String(tokens), {
          x: playhead,
          y: tokens,
          xanchor: (edge || side) < 0 ? "right" : "left",
          xshift: 9 * (edge || side),
          yanchor: side < 0 ? "bottom" : "top",
          bold: isMain,
          font: { size: 12.5 * pageScale(), color: isMain ? colours.ink : colours.muted },
        }),
      );
    });
  }

  series({ lane, role, found }, mode, below) {
    const words = mode === "tokens" ? "%{y} tokens" : "%{y:.0f} tokens/s";
    return {
      name: lane.title,
      role,
      below,
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
