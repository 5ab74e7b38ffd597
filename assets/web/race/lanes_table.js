// More than two lanes on one card: what each one's steps brought and cost.

import { h, milliseconds, number, say } from "../base/dom.js";
import { passesOf } from "../data/history.js";
import { metrics } from "../data/metrics.js";
import { table } from "../watch/tables.js";

const shown = (value, digits) => (value === null ? "–" : number(value, digits));

function sameWords(lane, plain) {
  if (!plain || lane === plain) return "–";
  const parts = metrics.partsAt({ main: lane, plain });
  return parts === null ? say("arena_same") : say("same_no", { token: parts + 1 });
}

function rowOf(lane, plain) {
  const speedup = metrics.speedup(lane, plain);
  return [lane.title, shown(metrics.tau(lane.steps), 2), shown(metrics.mean(lane.steps, passesOf), 1),
    shown(metrics.mean(lane.steps, (step) => step.nodes.length), 1), milliseconds(metrics.mean(lane.steps, (step) => step.draft_ms)),
    milliseconds(metrics.mean(lane.steps, (step) => step.verify_ms)), speedup === null ? "–" : `${number(speedup, 2)}×`,
    sameWords(lane, plain)];
}

// Nothing for two lanes, whose result card says it all
export function lanesTable(run) {
  if (!run || !run.finished || run.ordered.length < 3) return null;
  const heads = ["arena_lane", "metric_tau", "arena_passes", "arena_rows", "arena_draft", "arena_check", "arena_speedup",
    "metric_same"].map((key) => say(key));
  return h("section", { class: "pane lanes-table", "aria-label": say("arena_title") },
    h("div", { class: "pane-head" }, h("h2", null, say("arena_title"))),
    table(say("arena_note"), heads, run.ordered.map((lane) => rowOf(lane, run.plain))));
}
