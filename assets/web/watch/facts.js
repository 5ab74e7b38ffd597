// An answer's numbers: three in one sentence above it, all with their definitions below the fold, a dash where one is unknown.

import { counted, h, number, rate, say, setText, wholePercent } from "../base/dom.js";
import { metrics } from "../data/metrics.js";
import { moves } from "../page/machine.js";

const NEAR_TIE = 0.5;
const FEW_TOKENS = 1.25; // per step: the draft is hardly ever right
const FEWEST_STEPS = 8;

// Whether the text is plain decoding's: {value, note, state: "same", "different" or "none", tokens, behind: it has written fewer, step}
function sameText(run, steps) {
  const { main, plain } = run;
  if (!plain || plain === main)
    return { value: say("not_measured"), note: say("same_alone"), state: "none" };
  const different = metrics.partsAt(run);
  const shown = main.countAfter((steps ?? main.steps.length) - 1);
  if (different !== null && (steps === undefined || different < shown)) {
    const margin = metrics.marginAt(plain, different);
    const { step } = main.tokens[Math.min(different, main.tokens.length - 1)];
    return {
      value: say("same_no", { token: different + 1 }),
      state: "different",
      step: Math.max(0, step),
      note:
        margin === null
          ? ""
          : say(margin < NEAR_TIE ? "same_no_note" : "same_no_wide", {
              margin: margin.toPrecision(2),
            }),
    };
  }
  const tokens = counted("token", Math.min(shown, plain.tokens.length));
  return {
    value: say("same_yes", { tokens }),
    state: "same",
    tokens,
    behind: plain.tokens.length < shown,
    note: say("metric_same_note"),
  };
}

export const speedupWords = (value) => (value === null ? null : `${number(value, 2)}×`);

const waiting = (run) => say(run.finished ? "not_measured" : "measuring");

// Speedup over the plain lane
const speedupOf = (run, steps) =>
  run.plain
    ? {
        value: speedupWords(metrics.speedup(run.main, run.plain, steps)) || waiting(run),
        note: say("metric_speedup_note"),
      }
    : { value: say("not_measured"), note: say("same_alone") };

// τ; if the answer's end cut accepted tokens off, the note has the value without the cut
function tauOf(steps) {
  const [delivered, drafted] = [metrics.tau(steps), metrics.tauDrafted(steps)];
  return {
    value: delivered === null ? say("not_measured") : number(delivered, 2),
    note:
      delivered === drafted
        ? say("metric_tau_note")
        : say("metric_tau_note_cut", { drafted: number(drafted, 2) }),
  };
}

// Numbers as they stood after `steps` of the main lane, all of it when undefined: {name: {value, note}}
const threeOf = (run, steps) => ({
  speedup: speedupOf(run, steps),
  tau: tauOf(run.main.steps.slice(0, steps)),
  same: sameText(run, steps),
});

function allOf(run, steps) {
  const { main, plain } = run;
  const [speed, acceptance] = [
    metrics.speed(main, steps),
    metrics.acceptance(main.steps.slice(0, steps)),
  ];
  return {
    ...threeOf(run, steps),
    rate: {
      value: speed === null ? waiting(run) : rate(speed),
      note: say(plain ? "metric_rate_note" : "metric_rate_note_alone", {
        lane: main.title,
        plain: rate(plain ? metrics.speed(plain) : null),
      }),
    },
    acceptance: {
      value: acceptance === null ? say("not_measured") : wholePercent(acceptance),
      note: say("metric_acceptance_note"),
    },
  };
}

// The facts below the answer; each part has a definition on hover, focus and tap
export class Headline {
  constructor(host) {
    this.host = host;
    this.facts = Object.fromEntries(
      ["same", "speedup", "tau"].map((name) => [
        name,
        {
          value: h("b"),
          rest: document.createTextNode(""),
          note: h("span.fact-note", { role: "tooltip" }),
        },
      ]),
    );
    this.hint = h("p.fact-hint.muted", { hidden: true }, say("hint_language"));
    this.show = h(
      "button.link-button",
      { hidden: true, onclick: () => moves.seek(this.partsAt) },
      say("show"),
    );
    host.append(
      ...Object.entries(this.facts).map(
        ([name, fact]) =>
          (fact.element = h(
            "button.fact",
            { "data-fact": name },
            h("span", fact.value, fact.rest),
            fact.note,
          )),
      ),
      this.show,
      this.hint,
    );
  }

  draw(run, steps) {
    this.host.hidden = !run?.main;
    if (!run?.main) return;
    const numbers = threeOf(run, steps);
    const { same, speedup, tau } = numbers;
    const alike = say(
      !same.behind ? "fact_same" : run.finished ? "fact_same_stopped" : "fact_same_so_far",
    );
    const words = {
      same:
        same.state === "same"
          ? [say("fact_same_value", same), alike]
          : same.state === "different"
            ? [same.value, ""]
            : null,
      speedup: /\d/.test(speedup.value) ? [speedup.value, say("fact_speedup")] : null,
      tau: /\d/.test(tau.value)
        ? [number(Number(tau.value), 1), say("fact_tau")]
        : run.finished
          ? null
          : ["", say("measuring")],
    };
    for (const [name, fact] of Object.entries(this.facts)) {
      const [value, rest] = words[name] || ["", ""];
      setText(fact.value, value);
      setText(fact.rest, value && rest ? ` ${rest}` : rest);
      setText(fact.note, numbers[name].note);
      fact.element.hidden = !words[name];
    }
    this.facts.same.element.dataset.state = same.state;
    const { main } = run;
    this.hint.hidden = !(
      run.finished &&
      main.header.drafter &&
      main.steps.length >= FEWEST_STEPS &&
      metrics.tau(main.steps) < FEW_TOKENS
    );
    this.show.hidden = same.state !== "different";
    this.partsAt = same.step;
  }
}

// With their names and definitions
export function drawNumbers(host, run, steps) {
  const rows = Object.entries(run?.main ? allOf(run, steps) : {}).map(([key, { value, note }]) => [
    h("dt", say(`metric_${key}`)),
    h("dd.tabular", { "data-metric": key }, value),
    h("dd.muted", note),
  ]);
  host.replaceChildren(h("dl.numbers", rows));
}
