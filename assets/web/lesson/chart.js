// A lesson's chart: a line through [x, y] points and one marked point; a click or a key moves the control it belongs to.

import { number, say } from "../base/dom.js";
import { lessonControls } from "./controls.js";
import { lessonData } from "./data.js";
import { Figure } from "../plots/figure.js";
import { plotStyle } from "../plots/template.js";
import { table } from "../watch/tables.js";

// `name` is part of saved files' names; `onPick` gets the whole number on the x axis that was clicked
function chart(host, name, onPick) {
  let last = null;
  const figure = new Figure(host, () => last && draw(last));

  function draw(given) {
    last = given;
    const { points, mark, xTicks, xName, yName, label, top } = given;
    const full = [xTicks[0], points.at(-1)[0]];
    const highest = top || Math.max(...points.map(([, y]) => y)) * 1.08;
    const words = (value) => number(value, value < 10 ? 2 : 1);
    const rows = (places, shown) => places.map((x) => [x, lessonData.interpolate(points, x)].map(shown));
    const xs = Array.from({ length: full[1] - full[0] + 1 }, (_, i) => full[0] + i);
    const line = { name: yName, traces: () => [{ x: points.map(([x]) => x), y: points.map(([, y]) => y), mode: "lines",
      text: points.map(([, y]) => words(y)), hovertemplate: "%{text}<extra></extra>", line: plotStyle.lineOf("main") }] };
    const dot = { name: "", traces: () => [{ x: [mark[0]], y: [mark[1]], mode: "markers",
      marker: plotStyle.markerOf("main", 11) }] };
    figure.draw({
      id: name, name: `jakiro-${name}`, sentence: `${label}. ${say("chart_at", { x: mark[0], name: xName })}: ${words(mark[1])}`,
      table: () => table(label, [xName, yName], rows(xTicks, String)), rows: () => [[xName, yName], ...rows(xs, (value) => value)],
      series: [line], labelled: true, over: [dot], margin: { left: 44 },
      x: { title: xName, full, ticks: { tickvals: xTicks, unifiedhovertitle: { text: plotStyle.plotText(say("chart_at", { x: "%{x}", name: xName })) } } },
      y: { title: yName, full: [0, highest] },
      shapes: [{ type: "line", x0: mark[0], x1: mark[0], y0: 0, y1: mark[1],
        line: { color: plotStyle.template().colours.control, width: 1, dash: "3px,3px" } }],
      pick: onPick,
    });
  }
  return { draw };
}

Object.assign(lessonControls, { chart });
