// The benchmark's dot plot: speedup by category with its interval, prompts as faint points, a line where both are equally fast.

import { counted, pageScale, say } from "../base/dom.js";
import { OVERALL, categoryWords, intervalOf, laneWords, rowsOf, spread, times } from "./table.js";
import { Figure } from "../plots/figure.js";
import { plotStyle } from "../plots/template.js";

const { plotText, markerOf } = plotStyle;
const ROW = 30;
const LANE = 15;
const TOP = 26;
const BOTTOM = 40;
const ROLES = ["main", "other-0", "other-1", "other-2"];

// From the lowest to the highest value that is drawn, the line at 1× included, in quarters
function rangeOf(rows) {
  const values = rows.flatMap(({ group }) => [
    group.speedup,
    ...(intervalOf(group) || []),
    ...(group.prompt_speedups || []),
  ]);
  return [
    Math.floor(Math.min(0.85, ...values) * 4 - 0.1) / 4,
    Math.ceil(Math.max(1.5, ...values) * 4 + 0.1) / 4,
  ];
}

// One category by one method
function wordsOf({ category, lane, group }) {
  const interval = intervalOf(group);
  const speedup = [times(group.speedup), ...(interval ? [`(${spread(interval)})`] : [])];
  const prompts = counted("bench_prompt", group.num_runs);
  return [categoryWords(category), laneWords(lane), ...speedup, prompts].join(" · ");
}

export class BenchmarkPlot {
  constructor(host, redraw) {
    this.figure = new Figure(host, redraw);
  }

  // False where no speedup is known
  draw(results, temperature) {
    const rows = rowsOf(results, temperature).filter((row) => row.group.speedup !== null);
    const lanes = [...new Set(rows.map((row) => row.lane))];
    // All prompts first, then by how much the first method gains
    const gain = (category) =>
      category === OVERALL ? Infinity : rows.find((row) => row.category === category).group.speedup;
    const known = new Set(rows.map((row) => row.category));
    const categories = [...known].sort((a, b) => gain(b) - gain(a));
    if (!rows.length) return false;
    const scale = pageScale();
    const wide = this.figure.host.clientWidth;
    const rowHeight = Math.max(ROW, LANE * lanes.length + 12);
    const high = TOP + rowHeight * categories.length + BOTTOM;
    this.figure.room.style.height = `${high * scale}px`;
    const placeOf = ({ category, lane }) =>
      categories.indexOf(category) +
      ((lanes.indexOf(lane) - (lanes.length - 1) / 2) * LANE) / rowHeight;
    const titles = categories.map((category) => plotText(categoryWords(category)));
    this.figure.draw({
      id: temperature,
      name: `jakiro-benchmark-t${temperature}`,
      sentence: say("bench_plot", { temperature }),
      saved: { height: 150 + high },
      rows: () => this.rows(rows, temperature),
      series: lanes.map((lane, place) =>
        this.series(lane, ROLES[place % ROLES.length], rows, placeOf),
      ),
      margin: { left: Math.min(140, (wide / scale) * 0.3), right: 60, top: TOP, bottom: BOTTOM },
      x: {
        title: say("bench_axis"),
        full: rangeOf(rows),
        ticks: { ticksuffix: "×", nticks: Math.max(4, Math.round(wide / 80)) },
      },
      y: {
        full: [categories.length - 0.5, -0.5],
        ticks: {
          tickvals: categories.map((_, i) => i),
          showgrid: false,
          ticktext: titles.map((title, i) => (i ? title : `<b>${title}</b>`)),
          tickfont: { color: plotStyle.template().colours.ink },
        },
      },
      hover: "closest",
      ...this.marks(rows, placeOf),
    });
    return true;
  }

  series(lane, role, rows, placeOf) {
    const own = rows.filter((row) => row.lane === lane);
    const { colours, scale } = plotStyle.template();
    const single = own.flatMap((row) =>
      (row.group.prompt_speedups || []).map((value) => [value, placeOf(row)]),
    );
    const speedups = own.map(({ group }) => group.speedup);
    const ends = own.map(({ group }) => intervalOf(group) || [group.speedup, group.speedup]);
    const prompts = {
      x: single.map(([x]) => x),
      y: single.map(([, y]) => y),
      mode: "markers",
      showlegend: false,
      hoverinfo: "skip",
      cliponaxis: false,
      marker: { ...markerOf(role, 5), symbol: "circle", opacity: 0.4, line: { width: 0 } },
    };
    const intervals = {
      type: "data",
      symmetric: false,
      color: colours.control,
      thickness: 2 * scale,
      width: 4 * scale,
      array: speedups.map((speedup, i) => ends[i][1] - speedup),
      arrayminus: speedups.map((speedup, i) => speedup - ends[i][0]),
    };
    const groups = {
      x: speedups,
      y: own.map(placeOf),
      mode: "markers",
      cliponaxis: false,
      marker: markerOf(role, 11),
      text: own.map((row) => plotText(wordsOf(row))),
      hovertemplate: "%{text}<extra></extra>",
      error_x: intervals,
    };
    return { name: laneWords(lane), traces: [prompts, groups] };
  }

  // The line where both are equally fast, and each speedup in figures at the right edge
  marks(rows, placeOf) {
    const { colours, scale } = plotStyle.template();
    const font = { color: colours.ink, size: 12 * scale };
    const words = (text, place) => ({ text: plotText(text), showarrow: false, font, ...place });
    const right = { x: 1, xref: "paper", xanchor: "left", xshift: 12, yref: "y" };
    const values = rows.map((row) =>
      words(times(row.group.speedup), { ...right, y: placeOf(row) }),
    );
    const above = { x: 1, xref: "x", y: 1, yref: "paper", yanchor: "bottom" };
    const line = { color: colours.ink, width: 2, dash: "6px,4px" };
    return {
      notes: [...values, words(say("bench_even"), above)],
      shapes: [{ type: "line", x0: 1, x1: 1, y0: 0, y1: 1, yref: "paper", line }],
    };
  }

  rows(rows, temperature) {
    const interval = ["interval_low", "interval_high"];
    return [
      ["temperature", "category", "method", "speedup", ...interval, "speedups_of_prompts"],
      ...rows.map(({ category, lane, group }) => [
        temperature,
        category,
        lane,
        group.speedup,
        ...(intervalOf(group) || ["", ""]),
        (group.prompt_speedups || []).join(" "),
      ]),
    ];
  }
}
