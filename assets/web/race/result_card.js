// The result of an answer on one card: verdict, numbers with their definitions, and what it was measured on. Where more than two
// lanes ran, also a table of what each one's steps brought and cost.

import { apart, counted, h, milliseconds, number, rate, say, shares, table, wholePercent } from "../base/dom.js";
import { passesOf } from "../data/history.js";
import { metrics } from "../data/metrics.js";
import { definitions, sameText, speedupWords, tauNote } from "../watch/facts.js";

export function verdict(run) {
  const { main, plain } = run;
  if (!plain || plain === main) return "";
  if (!run.finished) return say("verdict_running");
  if ([main, plain].some((lane) => lane.endReason === "stopped")) return say("verdict_stopped");
  const different = metrics.partsAt(run);
  if (different !== null) return partedVerdict(main, plain, different);
  if (Math.min(main.tokens.length, plain.tokens.length) < metrics.FEWEST_TOKENS) return say("verdict_short");
  const lead = plain.clock - main.clock;
  if (Math.abs(lead) < 0.02 * plain.clock) return say("verdict_tie");
  const values = { lane: (lead > 0 ? main : plain).title, lead: apart(lead) };
  return say(lead > 0 ? "verdict_drafted" : "verdict_plain", values);
}

// The lead at the last token both texts have
function partedVerdict(main, plain, different) {
  const [mine, theirs] = [main.secondsTo(different), plain.secondsTo(different)];
  const lane = (theirs >= mine ? main : plain).title;
  return say("verdict_parted", { token: different + 1, lane, lead: apart(theirs - mine) });
}

// What the card says, as plain data
export function resultOf(run) {
  const { main, plain } = run;
  const { header } = main;
  const counts = metrics.acceptedByProposer(main.steps);
  const proposers = [...counts.keys()].sort((a, b) => counts.get(b).length - counts.get(a).length);
  const whole = shares(proposers.map((proposer) => counts.get(proposer).length));
  const tau = metrics.tau(main.steps);
  const same = sameText(run);
  // A lane that begins with another lane's rows reads almost nothing
  const reader = run.ordered.reduce((most, lane) => (lane.header.prefill_ms > most.prefill_ms ? lane.header : most), header);
  const reused = reader.num_reused_tokens;
  const versions = Object.entries(header.versions).map(([name, version]) => `${name} ${version}`).join(", ");
  const { temperature, seed } = header.sampling;
  const settings = { temperature, seed, candidates: counted("candidate", header.tree.nodes - 1) };
  return {
    verdict: verdict(run),
    speedup: speedupWords(metrics.speedup(main, plain)) || say(run.finished ? "not_measured" : "measuring"),
    rows: [
      [say("metric_same"), same.value, same.note],
      [say("metric_tau"), tau === null ? say("not_measured") : number(tau, 2), tauNote(main.steps)],
      [say("card_speeds"), speedsOf(run), say("card_speeds_note")],
      [say("card_step_time"), `${metrics.stepTimes(main.steps).map(milliseconds).join(" · ")}\u00a0ms`, say("card_step_time_note")],
      [
        say("card_share"),
        proposers.map((proposer, i) => `${main.proposers.named(proposer).label} ${whole[i]}\u00a0%`).join(" · ") || "–",
        say("card_share_note"),
      ],
      [say("card_acceptance_depth"), metrics.acceptanceByDepth(main.steps).map(([kept, tested]) => wholePercent(kept / tested)).join(" · ") || "–",
        say("card_depth_note")],
      [say("card_prefill"), `${milliseconds(reader.prefill_ms)}\u00a0ms`,
        reused ? say("card_prefill_known", { reused, all: reader.num_prompt_tokens }) : say("card_prefill_note")],
      [say("card_felt"), [0, header.queue_ms || 0].map((queue) => speedupWords(
        metrics.speedup(main, plain, undefined, (queue + reader.prefill_ms) / 1000)) || "–").join(" · "), say("card_felt_note")],
    ],
    small: [
      `${header.target.name} · ${header.drafter ? header.drafter.name : "–"} · ${header.device} · ${header.dtype} · ${header.numerics}`,
      `${say("card_settings", settings)} · ${String(header.created).slice(0, 10)}`, versions,
    ],
  };
}

const speedsOf = (run) => run.ordered
  .map((lane) => `${lane.title}\u00a0${rate(metrics.speed(lane))}`).join(" · ");

export function fillResultCard(host, run) {
  if (!run || !run.main) {
    host.replaceChildren(h("h2", null, say("card_title")), h("p", { class: "muted empty" }, say("card_empty")));
    return;
  }
  const result = resultOf(run);
  host.replaceChildren(
    h("div", { class: "pane-head" }, h("h2", null, say("card_title")),
      h("span", { class: "result-speedup tabular" }, result.speedup)),
    h("p", { class: "verdict" }, result.verdict), definitions(result.rows), ...result.small.map((line) => h("p", { class: "muted small" }, line)));
}

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
