// The result of a race on one card: verdict, a table of benefit and cost per step of each lane, and the device.

import { apart, counted, h, milliseconds, number, rate, say, table } from "../base/dom.js";
import { passesOf } from "../data/history.js";
import { metrics } from "../data/metrics.js";
import { speedupWords } from "../watch/facts.js";

export function verdict(run) {
  const { main, plain } = run;
  if (!plain || plain === main) return "";
  if (!run.finished) return say("verdict_running");
  if ([main, plain].some((lane) => lane.endReason === "stopped")) return say("verdict_stopped");
  const different = metrics.partsAt(run);
  if (different !== null) return partedVerdict(main, plain, different);
  if (Math.min(main.tokens.length, plain.tokens.length) < metrics.FEWEST_TOKENS)
    return say("verdict_short");
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

const shown = (value, digits) => (value === null ? "–" : number(value, digits));

function sameWords(lane, plain) {
  if (!plain || lane === plain) return "–";
  const parts = metrics.partsAt({ main: lane, plain });
  return parts === null ? say("arena_same") : say("same_no", { token: parts + 1 });
}

// The columns of the table by the words of their heads
const COLUMNS = {
  arena_lane: (lane) => lane.title,
  metric_tau: (lane) => shown(metrics.tau(lane.steps), 2),
  arena_speed: (lane) => rate(metrics.speed(lane)),
  arena_passes: (lane) => shown(metrics.mean(lane.steps, passesOf), 1),
  arena_rows: (lane) =>
    shown(
      metrics.mean(lane.steps, (step) => step.nodes.length),
      1,
    ),
  arena_draft: (lane) => milliseconds(metrics.mean(lane.steps, (step) => step.draft_ms)),
  arena_check: (lane) => milliseconds(metrics.mean(lane.steps, (step) => step.verify_ms)),
  arena_speedup: (lane, plain) => speedupWords(metrics.speedup(lane, plain)) || "–",
  metric_same: sameWords,
};

export function fillResultCard(host, run) {
  if (!run?.main)
    return host.replaceChildren(h("h2", say("card_title")), h("p.muted.empty", say("card_empty")));
  const { target, drafter, device, dtype, numerics, sampling, tree, created, versions } =
    run.main.header;
  const settings = { ...sampling, candidates: counted("candidate", tree.nodes - 1) };
  const small = [
    [target.name, drafter ? drafter.name : "–", device, dtype, numerics].join(" · "),
    `${say("card_settings", settings)} · ${String(created).slice(0, 10)}`,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(", "),
  ];
  const speedup =
    speedupWords(metrics.speedup(run.main, run.plain)) ||
    say(run.finished ? "not_measured" : "measuring");
  host.replaceChildren(
    h("div.pane-head", h("h2", say("card_title")), h("span.result-speedup.tabular", speedup)),
    h("p.verdict", verdict(run)),
    h(
      "div.lanes-table",
      table(
        say("arena_note"),
        Object.keys(COLUMNS).map((key) => say(key)),
        run.ordered.map((lane) => Object.values(COLUMNS).map((of) => of(lane, run.plain))),
      ),
    ),
    ...small.map((line) => h("p.muted.small", line)),
  );
}
