// The points of the speed plot, and the plot of an answer as `jakiro.figures.speed` draws it, for a file.

import { given, number, rate, say } from "../base/dom.js";
import { plotStyle } from "./template.js";

const MOST_POINTS = 500;
const SIZE = { width: 760, height: 460 };
const { template, lineOf, plotText } = plotStyle;

// Indices of a lane's first steps that are drawn; of many steps only every n-th, and the last
export function shownSteps(steps, most = MOST_POINTS) {
  const every = Math.max(1, Math.ceil(steps / most));
  return [...Array(steps).keys()].filter((i) => i % every === 0 || i === steps - 1);
}

export const tokenPoints = (lane, shown) => ({
  x: [0, ...shown.map((i) => lane.seconds[i])],
  y: [lane.lead, ...shown.map((i) => lane.counts[i])],
});

const speedOf = (lane) => (lane.counts.at(-1) - lane.lead) / lane.seconds.at(-1);

export function speedFigure(run) {
  const { colours, layout } = template();
  const { title, xaxis, yaxis, ...shared } = given.plotTemplate.figure;
  const lanes = [...new Set([run.plain, run.main])].filter((lane) => lane?.steps.length);
  const factor = lanes.length > 1 ? speedOf(run.main) / speedOf(run.plain) : null;
  const data = lanes.map((lane) => ({
    ...tokenPoints(lane, shownSteps(lane.steps.length)),
    mode: "lines",
    name: `${plotText(lane.title)}  ${rate(speedOf(lane))} tokens/s`,
    line: { ...lineOf(run.roleOf(lane)), shape: lane.isPlain ? "linear" : "hv" },
    showlegend: true,
  }));
  const words =
    factor === null ? say("plot_title") : say("plot_title_factor", { factor: number(factor, 2) });
  const figureLayout = {
    ...shared,
    ...SIZE,
    template: { layout },
    paper_bgcolor: colours.page,
    plot_bgcolor: colours.page,
    title: { ...title, text: words },
    xaxis: { ...xaxis, title: { text: say("plot_seconds") } },
    yaxis: { ...yaxis, title: { text: say("plot_y") }, rangemode: "tozero" },
  };
  return { data, layout: figureLayout };
}

// The text of an svg file
export async function speedPicture(run) {
  const address = await window.Plotly.toImage(speedFigure(run), { format: "svg", ...SIZE });
  return decodeURIComponent(address.slice(address.indexOf(",") + 1));
}
