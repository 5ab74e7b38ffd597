// A picture of the draft tree on screen, with question, step and legend.

import { counted, s, say, shares } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { depthOf } from "../data/history.js";
import { TARGET } from "../data/methods.js";
import { metrics } from "../data/metrics.js";
import { drawing } from "./drawing.js";
import { marker, markerNumber } from "../tree/marker.js";

const { drawnFile, page, line, widthOf } = drawing;

const WIDTH = 1920;
const MARGIN = 80;
const HEAD = 150;
const FOOT = 130;
const LONGEST_LABEL = 30;

// An svg inside another one: its drawing keeps its proportions and fills the box
function placed(svg, { x, y, width, height }) {
  const size = ["width", "height"].map((name) => svg.getAttribute(name));
  for (const [name, value] of Object.entries({ x, y, width, height, viewBox: `0 0 ${size[0]} ${size[1]}`,
    preserveAspectRatio: "xMinYMin meet" })) svg.setAttribute(name, value);
  return svg;
}

// Who proposes, with the share of the accepted tokens where `steps` are given; smaller where there are many
function legend(lane, steps, { x, y, size: wanted, room }) {
  const counts = metrics.acceptedByProposer(steps || []);
  const percent = shares(lane.proposers.all.map((one) => counts[one.id] || 0));
  const known = steps && metrics.acceptance(steps);
  const entries = [...lane.proposers.all, TARGET].map((one, i) => ({ one, before: 1.25 + 0.5 * one.number.length,
    words: cut(`${one.label}${known && one !== TARGET ? ` ${percent[i]} %` : ""}`, LONGEST_LABEL) }));
  const wide = entries.reduce((sum, { before, words }) => sum + (before + 1.2) * wanted + widthOf(words, wanted), 0);
  const size = Math.min(wanted, (wanted * room) / wide);
  let at = x;
  return s("g", null, entries.map(({ one, before, words }) => {
    const mark = [marker(one, size * 0.8), markerNumber(one, size * 0.8, size * 0.7)];
    const entry = s("g", null, s("g", { transform: `translate(${at + size * 0.4} ${y - size * 0.35})` }, mark),
      line(words, at + size * before, y, { size, look: "muted" }));
    at += (before + 1.2) * size + widthOf(words, size);
    return entry;
  }));
}

// What a picture was measured on, in one line
const madeOn = ({ target, drafter, device, dtype, numerics }) => [target.name, drafter ? drafter.name : "–", device, dtype, numerics]
  .join(" · ");

function stepLine(lane, index) {
  const step = lane.steps[index];
  return [say("draft_tree"), say("step_of", { step: index + 1, steps: lane.steps.length }),
    counted("candidate", step.nodes.length - 1), counted("level", depthOf(step))].join(" · ");
}

// The tree on screen as an svg file; null where none is drawn
export function treePicture(run, index) {
  const shown = document.querySelector(".tree-host svg.tree");
  if (!shown) return null;
  const [width, height] = ["width", "height"].map((name) => Number(shown.getAttribute(name)));
  const tall = Math.round((height * (WIDTH - 2 * MARGIN)) / width);
  const { header } = run.main;
  const room = WIDTH - 2 * MARGIN;
  return drawnFile(() => {
    const picture = page(WIDTH, HEAD + tall + FOOT);
    picture.append(line(run.question, MARGIN, 70, { size: 40, weight: 600, room }),
      line(stepLine(run.main, index), MARGIN, 118, { size: 28, look: "muted", room }),
      placed(shown.cloneNode(true), { x: MARGIN, y: HEAD, width: room, height: tall }),
      legend(run.main, null, { x: MARGIN, y: HEAD + tall + 50, size: 26, room }),
      line(`${madeOn(header)} · ${String(header.created).slice(0, 10)}`, MARGIN, HEAD + tall + 100, { size: 24, look: "muted", room }));
    return picture;
  });
}

export const treeLegend = legend;
