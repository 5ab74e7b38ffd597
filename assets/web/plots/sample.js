// A short piece of a line, or its mark, as it stands beside a name in legends and readouts.

import { s } from "../base/dom.js";
import { plotStyle } from "./template.js";

const MARKS = {
  circle: () => s("circle", { cx: 8, cy: 8, r: 5 }),
  square: () => s("rect", { x: 3.5, y: 3.5, width: 9, height: 9 }),
  diamond: () => s("path", { d: "M8,1.5L14.5,8L8,14.5L1.5,8Z" }),
  "triangle-up": () => s("path", { d: "M8,2L14,13H2Z" }),
};

export function plotSample(role, marks) {
  const { colour, symbol, width, dash } = plotStyle.lookOf(role);
  if (marks) {
    return s("svg", { class: `plot-sample${symbol.endsWith("-open") ? " hollow" : ""}`, width: 16, height: 16, "aria-hidden": "true",
      style: `--line: var(--${colour})` }, MARKS[symbol.replace("-open", "")]());
  }
  return s("svg", { class: "plot-sample", width: 28, height: 16, "aria-hidden": "true", style: `--line: var(--${colour})` },
    s("path", { d: "M0,8H28", "stroke-width": width, "stroke-dasharray": dash === "solid" ? null : dash.replaceAll("px", "") }));
}
