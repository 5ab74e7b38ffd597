// The result of an answer on one card: verdict, numbers with their definitions, and what it was measured on.

import { apart, counted, filledBar, h, milliseconds, number, rate, say, shares, wholePercent } from "../base/dom.js";
import { metrics } from "../data/metrics.js";
import { sameText, speedupWords, tauNote } from "../watch/facts.js";

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

// All lines of the card as plain data, so that the page and the picture show the same
export function resultOf(run) {
  const { main, plain } = run;
  const { header } = main;
  const counts = metrics.acceptedByProposer(main.steps);
  const proposers = Object.keys(counts).sort((a, b) => counts[b] - counts[a]);
  const whole = shares(proposers.map((proposer) => counts[proposer]));
  const tau = metrics.tau(main.steps);
  const same = sameText(run);
  // A lane that begins with another lane's rows reads almost nothing
  const reader = run.ordered.reduce((most, lane) => (lane.header.prefill_ms > most.prefill_ms ? lane.header : most), header);
  const reused = reader.num_reused_tokens;
  const versions = Object.entries(header.versions).map(([name, version]) => `${name} ${version}`).join(", ");
  const { temperature, seed } = header.sampling;
  const settings = { temperature, seed, candidates: counted("candidate", header.tree.nodes - 1) };
  return {
    question: run.question,
    verdict: verdict(run),
    speedup: speedupWords(metrics.speedup(main, plain)) || say(run.finished ? "not_measured" : "measuring"),
    rows: [
      [say("metric_same"), same.value, same.note],
      [say("metric_tau"), tau === null ? say("not_measured") : number(tau, 2), tauNote(main.steps)],
      [say("card_speeds"), speedsOf(run), say("card_speeds_note")],
      [say("card_step_time"), `${metrics.stepTimes(main.steps).map(milliseconds).join(" · ")} ms`, say("card_step_time_note")],
      [
        say("card_share"),
        proposers.map((proposer, i) => `${main.proposers.named(proposer).label} ${whole[i]}\u00a0%`).join(" · ") || "–",
        say("card_share_note"),
      ],
      [say("card_prefill"), `${milliseconds(reader.prefill_ms)} ms`,
        reused ? say("card_prefill_known", { reused, all: reader.num_prompt_tokens }) : say("card_prefill_note")],
      [say("card_felt"), [0, header.queue_ms || 0].map((queue) => speedupWords(
        metrics.speedup(main, plain, undefined, (queue + reader.prefill_ms) / 1000)) || "–").join(" · "), say("card_felt_note")],
    ],
    depths: metrics.acceptanceByDepth(main.steps),
    small: [
      `${header.target.name} · ${header.drafter ? header.drafter.name : "–"} · ${header.device} · ${header.dtype} · ${header.numerics}`,
      `${say("card_settings", settings)} · ${String(header.created).slice(0, 10)}`, versions,
    ],
  };
}

const speedsOf = (run) => run.ordered
  .map((lane) => `${lane.title}\u00a0${rate(metrics.speed(lane))}`).join(" · ");

function depthBars(depths) {
  return h("div", { class: "depth-bars" }, h("div", { class: "muted" }, say("card_acceptance_depth")),
    depths.map(([kept, tested], i) => h("div", { class: "depth-row" }, h("span", null, say("level", { n: i + 1 })),
      filledBar("fill-ink", kept / tested),
      h("span", { class: "tabular" }, say("card_depth_value", { percent: wholePercent(kept / tested), tested })))));
}

export function fillResultCard(host, run) {
  if (!run || !run.main) {
    host.replaceChildren(h("h2", null, say("card_title")), h("p", { class: "muted empty" }, say("card_empty")));
    return;
  }
  const result = resultOf(run);
  host.replaceChildren(
    h("div", { class: "pane-head" }, h("h2", null, say("card_title")),
      h("span", { class: "result-speedup tabular" }, result.speedup)),
    h("p", { class: "asked two-lines", dir: "auto" }, result.question), h("p", { class: "verdict" }, result.verdict),
    h("dl", null, result.rows.map(([name, value, note]) => [h("dt", null, name), h("dd", { class: "tabular" }, value),
      note ? h("dd", { class: "note muted" }, note) : null])),
    h("div", { class: "result-side" }, depthBars(result.depths),
      result.small.map((line) => h("p", { class: "muted small" }, line))));
}
