// The result card as a picture of 1920 × 1080: question, verdict and numbers, the coloured text, the race as bars, and the tree of
// the best step. The same svg is saved as it is, or as a png.

import { clockOf, rate, s, say } from "../base/dom.js";
import { metrics } from "../data/metrics.js";
import { highlight } from "../page/machine.js";
import { resultOf } from "../race/result_card.js";
import { drawing } from "./drawing.js";
import { textInBox } from "./text_picture.js";
import { madeOn, stepLine, treeInBox, treeLegend } from "./tree_picture.js";

const { drawnFile, page, pane, line } = drawing;

const [WIDTH, HEIGHT, MARGIN] = [1920, 1080, 72];
const RIGHT = 960; // where the right half begins
const LEFT_WIDE = 850;
// Rows of the card for which the picture has room; speeds of more than two lanes stand beside their bars only
const FEW_LANES = [0, 1, 2, 3];
const MANY_LANES = [0, 1, 3, 5];

function head(result) {
  return [
    line(`${say("title")} · ${say("tagline")}`, MARGIN, 66, { size: 26, look: "muted" }),
    line(result.question, MARGIN, 124, { size: 42, weight: 600, room: WIDTH - 2 * MARGIN }),
    line(result.speedup, MARGIN, 250, { size: 100, least: 48, weight: 700, room: LEFT_WIDE }),
    line(result.speedupNote, MARGIN, 292, { size: 22, look: "muted", room: LEFT_WIDE }),
    line(result.verdict, MARGIN, 334, { size: 28, least: 20, room: LEFT_WIDE }),
  ];
}

// The numbers with their definitions, two by two
function numbers(run, result) {
  const rows = (run.ordered.length > 2 ? MANY_LANES : FEW_LANES).map((row) => result.rows[row]);
  return rows.flatMap(([name, value, note], i) => {
    const [x, y] = [RIGHT + (i % 2) * 450, 172 + (i >> 1) * 100];
    return [line(name, x, y, { size: 22, look: "muted", room: 430 }),
      line(value, x, y + 36, { size: 30, least: 20, weight: 600, room: 430 }),
      line(note || "", x, y + 64, { size: 18, look: "muted", room: 430 })];
  });
}

function answerPane(stage, lane, { x, y, width, height }) {
  return [pane(x, y, width, height), line(say("answer"), x + 24, y + 40, { size: 24, weight: 600 }),
    textInBox(stage, lane, { x: x + 24, y: y + 58, width: width - 48, height: height - 112, size: 24, lineHeight: 37 }),
    treeLegend(lane, lane.steps, { x: x + 24, y: y + height - 22, size: 22, room: width - 48 })];
}

// The tree of the step with the longest accepted path; plain decoding has none
function treePane(stage, lane, { x, y, width, height }) {
  const best = lane.steps.length ? highlight(lane) : null;
  const drafted = best !== null && lane.steps[best].nodes.length > 1;
  return [pane(x, y, width, height),
    line(drafted ? stepLine(lane, best) : say("no_tree"), x + 24, y + 40, { size: 24, weight: 600, room: width - 48 }),
    drafted ? treeInBox(stage, lane, best, { x: x + 24, y: y + 56, width: width - 48, height: height - 68 }) : ""];
}

// Every lane's clock on one axis, with its name and speed
function bars(run, { x, y, width, height }) {
  const [names, clocks] = [240, 130];
  const longest = Math.max(0.1, ...run.ordered.map((lane) => lane.clock));
  const row = height / run.ordered.length;
  return run.ordered.map((lane, i) => {
    const [middle, long] = [y + (i + 0.5) * row, ((width - names - clocks) * lane.clock) / longest];
    const speed = metrics.speed(lane);
    return s("g", null, line(lane.title, x, middle - 2, { size: 24, least: 15, weight: 600, room: names - 16 }),
      line(speed === null ? "–" : `${rate(speed)} tokens/s`, x, middle + 24, { size: 20, look: "muted" }),
      s("rect", { class: `bar lane-${run.roleOf(lane)}`, x: x + names, y: middle - row * 0.3, width: long, height: row * 0.6, rx: 4 }),
      line(say("picture_seconds", { seconds: clockOf(lane.clock) }), x + names + long + 14, middle + 12, { size: 34, weight: 650 }));
  });
}

function foot(run, result) {
  const [, settings, versions] = result.small;
  const style = { size: 21, look: "muted", room: WIDTH - 2 * MARGIN };
  return [line(`${madeOn(run.main.header)} · ${settings}`, MARGIN, 1016, style),
    line(run.unequalHeads || versions, MARGIN, 1048, style)];
}

// The text of an svg file
export function resultPicture(run) {
  const result = resultOf(run);
  const [top, bottom] = [368, 978];
  const wide = WIDTH - MARGIN - RIGHT;
  const tree = { x: RIGHT, y: top, width: wide, height: 358 };
  const race = { x: RIGHT, y: top + 374, width: wide, height: bottom - top - 374 };
  return drawnFile((stage) => {
    const picture = page(WIDTH, HEIGHT);
    picture.append(...head(result), ...numbers(run, result),
      ...answerPane(stage, run.main, { x: MARGIN, y: top, width: RIGHT - MARGIN - 16, height: bottom - top }),
      ...treePane(stage, run.main, tree), pane(race.x, race.y, race.width, race.height),
      line(say("picture_race"), race.x + 24, race.y + 40, { size: 24, weight: 600 }),
      ...bars(run, { x: race.x + 24, y: race.y + 52, width: wide - 48, height: race.height - 64 }), ...foot(run, result));
    return picture;
  });
}
