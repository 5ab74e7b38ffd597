// What an answer's numbers say: three of them in one sentence above it, all of them with their definitions below the fold,
// and a dash where something was not measured.

import { counted, h, number, rate, say, setText, wholePercent } from "../base/dom.js";
import { metrics } from "../data/metrics.js";

const NEAR_TIE = 0.5;

// What the same-text check says: {value, note, state: "same", "different" or "none", tokens, step: where they part}
function sameText(run, steps) {
  const { main, plain } = run;
  if (!plain || plain === main) return { value: say("not_measured"), note: say("same_alone"), state: "none" };
  const different = metrics.partsAt(run);
  if (different !== null && (steps === undefined || different < main.countAfter(steps - 1))) {
    const margin = metrics.marginAt(plain, different);
    const { step } = main.tokens[Math.min(different, main.tokens.length - 1)];
    return { value: say("same_no", { token: different + 1 }), state: "different", step: Math.max(0, step),
      note: margin === null ? ""
        : say(margin < NEAR_TIE ? "same_no_note" : "same_no_wide", { margin: margin.toPrecision(2) }) };
  }
  const shown = steps === undefined ? main.tokens.length : main.countAfter(steps - 1);
  const tokens = Math.min(shown, plain.tokens.length);
  return { value: say("same_yes", { tokens: counted("token", tokens) }), state: "same", tokens, note: say("metric_same_note") };
}

export const speedupWords = (value) => (value === null ? null : `${number(value, 2)}×`);

// What τ counts; where the answer's end cut something off, also what it was before
function tauNote(steps) {
  const [delivered, drafted] = [metrics.tau(steps), metrics.tauDrafted(steps)];
  return delivered === drafted ? say("metric_tau_note") : say("metric_tau_note_cut", { drafted: number(drafted, 2) });
}

// Against the plain lane beside it
const speedupOf = ({ main, plain }, steps, waiting) => (plain
  ? { value: speedupWords(metrics.speedup(main, plain, steps)) || waiting, note: say("metric_speedup_note") }
  : { value: say("not_measured"), note: say("same_alone") });

// The five numbers as they stood after `steps` of the main lane, all of it when undefined: {name: {value, note}}
function numbersOf(run, steps) {
  const { main, plain } = run;
  const none = say("not_measured");
  const taken = steps === undefined ? main.steps : main.steps.slice(0, steps);
  const waiting = run.finished ? none : say("measuring");
  const [tau, speed, acceptance] = [metrics.tau(taken), metrics.speed(main, steps), metrics.acceptance(taken)];
  return {
    speedup: speedupOf(run, steps, waiting),
    tau: { value: tau === null ? none : number(tau, 2), note: tauNote(taken) },
    same: sameText(run, steps),
    rate: { value: speed === null ? waiting : rate(speed), note: say(plain ? "metric_rate_note" : "metric_rate_note_alone",
      { lane: main.title, plain: rate(plain ? metrics.speed(plain) : null) }) },
    acceptance: { value: acceptance === null ? none : wholePercent(acceptance), note: say("metric_acceptance_note") },
  };
}

// The sentence above the answer; each part says on hover, focus and tap what it is
export class Headline {
  // `onShow` is called with the step at which two texts part
  constructor(host, onShow) {
    this.host = host;
    this.facts = Object.fromEntries(["same", "speedup", "tau"].map((name) => [name, { value: h("b"), rest: document.createTextNode(""),
      note: h("span", { role: "tooltip", class: "fact-note" }) }]));
    this.show = h("button", { class: "link-button", hidden: true, onclick: () => onShow(this.partsAt) }, say("show"));
    host.append(...Object.entries(this.facts).map(([name, fact]) => (fact.element = h("button", { class: "fact", "data-fact": name },
      h("span", null, fact.value, fact.rest), fact.note))), this.show);
  }

  draw(run, steps) {
    const numbers = run && run.main && numbersOf(run, steps);
    this.host.hidden = !numbers;
    if (!numbers) return;
    const { same, speedup, tau } = numbers;
    const shown = steps === undefined ? run.main.tokens.length : run.main.countAfter(steps - 1);
    const tokens = same.tokens < shown ? say("fact_same_part", { tokens: same.tokens, all: shown }) : counted("token", same.tokens || 0);
    const nothing = ["", ""];
    const words = {
      same: same.state === "same" ? [say("fact_same_value", { tokens }), say("fact_same")] : same.state === "different" ? [same.value, ""] : nothing,
      speedup: /\d/.test(speedup.value) ? [speedup.value, say("fact_speedup")] : nothing,
      tau: /\d/.test(tau.value) ? [number(Number(tau.value), 1), say("fact_tau")] : run.finished ? nothing : ["", say("measuring")],
    };
    for (const [name, fact] of Object.entries(this.facts)) {
      const [value, rest] = words[name];
      setText(fact.value, value);
      setText(fact.rest, value && rest ? ` ${rest}` : rest);
      setText(fact.note, numbers[name].note);
      fact.element.hidden = words[name] === nothing;
    }
    this.facts.same.element.dataset.state = same.state;
    this.show.hidden = same.state !== "different";
    this.partsAt = same.step;
  }
}

// Numbers with their names and definitions, from [name, value, note, key]
const definitions = (rows) => h("dl", { class: "numbers" }, rows.map(([name, value, note, key]) =>
  [h("dt", null, name), h("dd", { class: "tabular", "data-metric": key }, value), h("dd", { class: "muted" }, note)]));

export function drawNumbers(host, run, steps) {
  const numbers = run && run.main ? numbersOf(run, steps) : {};
  host.replaceChildren(definitions(Object.entries(numbers).map(([key, { value, note }]) => [say(`metric_${key}`), value, note, key])));
}
