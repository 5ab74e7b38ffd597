// Links: what an address says, and the addresses of what is on screen. A question and its settings stand in the part after
// "#", which browsers never send, so that no server's log holds them. Earlier turns of a chat are in no link.

import { given, number, say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { questionsOf } from "../data/history.js";

const LONGEST = 8000; // characters after "#"
const LONGEST_VALUE = 40; // of what a sentence repeats
const TABS = ["watch", "race", "lesson", "recordings", "benchmark"];
const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i;
// Numbers of the settings, some of them in a link only where they are not as usual
const NUMBERS = { temperature: null, "top-p": null, "top-k": null, seed: null, "min-p": 0, "repetition-penalty": 1, "presence-penalty": 0,
  "frequency-penalty": 0, "no-repeat-ngram-size": 0 };
// The form's fields that a link may fill, each with the way from words in an address to a value; what does not fit stays
// as it came, and the form's own rules refuse it
const asNumber = (text) => (NUMBER.test(text) ? Number(text) : text);
const asNumerics = (text) => ({ exact: say("exact"), fast: say("fast") })[text] || text;
const asPrefix = (text) => text.split("!").map((part) => part.split(".").filter(Boolean).map(asNumber));
const prefixText = ({ prefix_ids: ids, forced }) => `${ids.join(".")}!${forced.map(([place]) => place).join(".")}`;
const FIELDS = new Map([
  ["question", String], ["system-prompt", String], ["method", String], ["numerics", asNumerics],
  ["further-lanes", (text) => text.split(",").filter(Boolean)], ["alongside", (text) => ({ yes: true, no: false })[text] ?? text],
  ["answer-as", String], ["answer-form", String], ["answer-prefix", asPrefix], ["logit-bias", String], ["suppress-tokens", String], ["template-arguments", String],
  ...["length", "candidates", "levels", ...Object.keys(NUMBERS)].map((name) => [name, asNumber]),
]);
const OTHERS = ["tab", "target", "dtype"];

export class LinkError extends Error {}
const fail = (key, values) => {
  throw new LinkError(say(key, values));
};
// Other people's words inside one of ours: short, and not able to turn it around
export const quoted = (text) => `\u2068${cut(text.replace(/\p{C}/gu, "�"), LONGEST_VALUE)}\u2069`;

const base = () => location.origin + location.pathname;
export const tabHash = (tab) => (tab === "watch" ? "" : `#tab=${tab}`);

function recordingLink(name, step, tab = "watch") {
  return `${base()}?${new URLSearchParams({ recording: name, step })}${tabHash(tab)}`;
}

// The settings of an answer by the form's names, as its header tells them
function settingsOf(run) {
  const { sampling, tree, numerics, messages, template_arguments: told } = run.main.header;
  const drafting = run.ordered.filter((lane) => !lane.isPlain).map((lane) => lane.method);
  const numbers = Object.entries(NUMBERS).map(([name, usual]) => [name, sampling[name.replaceAll("-", "_")] ?? usual, usual])
    .filter(([, value, usual]) => value !== usual);
  const { kind, source } = sampling.grammar || {};
  const lists = { "logit-bias": (sampling.logit_bias || []).map((pair) => pair.join("=")), "suppress-tokens": sampling.suppress_tokens || [] };
  const system = messages.filter((message) => message.role === "system").map((message) => message.content).join("\n");
  return {
    ...Object.fromEntries(numbers), length: sampling.max_new_tokens,
    ...(tree.policy === "fixed" && tree.nodes > 1 ? { candidates: tree.nodes - 1, levels: tree.depth } : {}),
    ...(drafting.length ? { method: drafting[0] } : {}), alongside: run.plain ? "yes" : "no",
    "further-lanes": drafting.slice(1).join(","), numerics, ...(system ? { "system-prompt": system } : {}),
    ...(run.main.header.prefix_ids?.length ? { "answer-prefix": prefixText(run.main.header) } : {}),
    ...Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length).map(([name, list]) => [name, list.join(",")])),
    ...(kind ? { "answer-as": kind, "answer-form": [source].flat().join("\n") } : {}),
    ...(told ? { "template-arguments": JSON.stringify(told) } : {}),
  };
}

// Throws LinkError where the answer has no question that the form could hold, or one too long for a link
function askingLink(run, tab) {
  const { header } = run.main;
  if (!questionsOf(header).length) fail("link_no_question");
  const text = new URLSearchParams({ tab, question: run.question, ...settingsOf(run), target: header.target.name,
    dtype: header.dtype }).toString();
  if (text.length > LONGEST) fail("link_too_long", { size: number(text.length, 0), most: number(LONGEST, 0) });
  return `${base()}#${text}`;
}

// What is on screen as {link, note}: a step of a recording, an answer's question, or a tab
export function linkTo({ tab, run, index }) {
  const stop = tab === "lesson" && linkedStop(location);
  if (Number.isInteger(stop)) return { link: `${base()}#stop-${stop + 1}`, note: say("link_copied_stop", { n: stop + 1 }) };
  if (!run || !run.main || !["watch", "race"].includes(tab)) return { link: base() + tabHash(tab), note: say("link_copied") };
  const recording = /^recording-(.+)$/.exec(run.id);
  if (run.source === "recording" && recording) {
    return { link: recordingLink(recording[1], index + 1, tab), note: say("link_copied_step", { step: index + 1 }) };
  }
  return { link: askingLink(run, tab), note: say(questionsOf(run.main.header).length > 1 ? "link_copied_last" : "link_copied_question") };
}

// A question with its settings; `tree` follows from whether sizes are named
function askingOf(given) {
  const asking = {};
  for (const [name, text] of given) {
    if (FIELDS.has(name) && !Object.hasOwn(asking, name)) asking[name] = FIELDS.get(name)(text);
  }
  if (!Object.keys(asking).length) return null;
  if (!asking.question) fail("link_without_question");
  const sized = "candidates" in asking || "levels" in asking;
  return { ...asking, tree: say(sized ? "fixed" : "automatic") };
}

function stepOf(text) {
  if (text === null) return undefined;
  if (!/^[1-9]\d{0,5}$/.test(text)) fail("link_step", { step: quoted(text) });
  return Number(text) - 1;
}

// What an address names as a stop of the lesson, #stop-5 or ?stop=5; null where it names none
function stopText({ search, hash }) {
  const found = /^#stop-(.*)$/.exec(hash);
  return found ? found[1] : new URLSearchParams(search).get("stop");
}

// The place of that stop in the lesson, the first one 0; null where the lesson has none of that name
export function linkedStop(address) {
  const text = stopText(address);
  return /^[1-9]\d?$/.test(text) && Number(text) <= given.lessonTexts.length ? Number(text) - 1 : null;
}

// The tab that an address names, Watch where it names none that there is
export function tabOf({ hash }) {
  const tab = new URLSearchParams(hash.slice(1)).get("tab");
  return TABS.includes(tab) ? tab : "watch";
}

// {tab, recording, step, asking, target, dtype} of an address, each undefined or null where it does not say
export function readLink({ search, hash }) {
  const query = new URLSearchParams(search);
  const stop = stopText({ search, hash });
  if (stop !== null && linkedStop({ search, hash }) === null) {
    fail("link_stop", { stop: quoted(stop), stops: given.lessonTexts.length });
  }
  const found = { recording: query.get("recording"), step: stepOf(query.get("step")) };
  if (!hash.includes("=")) return found; // a place on the page, or a stop, which the lesson reads
  if (hash.length > LONGEST + 1) fail("link_longer", { size: number(hash.length - 1, 0), most: number(LONGEST, 0) });
  const fields = new URLSearchParams(hash.slice(1));
  for (const name of fields.keys()) {
    if (!FIELDS.has(name) && !OTHERS.includes(name)) fail("link_unknown", { name: quoted(name) });
  }
  const tab = fields.get("tab");
  if (tab !== null && !TABS.includes(tab)) fail("link_tab", { tab: quoted(tab) });
  return { ...found, tab, asking: askingOf(fields), target: fields.get("target"), dtype: fields.get("dtype") };
}
