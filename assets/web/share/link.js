// Links: reading an address, and creating addresses of the page's content. A question and its settings are in the part after
// "#", which browsers never send, so that no server logs them. Links contain no earlier turns of a chat.

import { attempt, given, number, refuse, say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { questionsOf } from "../data/history.js";
import { formDefaults } from "../page/form.js";

const LONGEST = 8000; // characters after "#"
const LONGEST_VALUE = 40; // of a value in a sentence
const TABS = ["watch", "race", "lesson", "recordings", "benchmark"];
// Fields whose defaults may differ on another page; other fields are in a link only if they differ from the defaults
const ALWAYS = ["temperature", "seed", "length", "method", "numerics"];
const SIZES = ["candidates", "levels"]; // only for a fixed tree, so that they define the tree
const PREFIX = "answer-prefix"; // the beginning of an answer that was forked
const OTHERS = ["tab", "target", "dtype", "answer"];
const RUN_ID = /^[0-9a-f]{32}$/;

// Other people's words inside one of ours: short, and not able to turn it around
export const quoted = (text) => `\u2068${cut(text.replace(/\p{C}/gu, "�"), LONGEST_VALUE)}\u2069`;

const base = () => location.origin + location.pathname;
export const tabHash = (tab) => (tab === "watch" ? "" : `#tab=${tab}`);

// A field's value as text of an address, and back; invalid values are kept for the form's own checks
function written(value) {
  if (typeof value === "string") return value;
  const isFlat = Array.isArray(value) && !Array.isArray(value[0]);
  return isFlat ? value.join(",") : JSON.stringify(value);
}
function read(text, usual) {
  if (typeof usual === "string") return text;
  if (Array.isArray(usual)) return text.split(",").filter(Boolean);
  return attempt(() => JSON.parse(text), text);
}

// Throws Trouble where it is too long for a link
function askingLink(run, tab) {
  const { target, dtype } = run.main.header;
  const usual = { ...formDefaults(), [PREFIX]: null };
  const isChanged = (name) =>
    JSON.stringify(run.form[name] ?? null) !== JSON.stringify(usual[name]);
  const isSaid = (name) =>
    SIZES.includes(name)
      ? run.form.tree === "fixed"
      : name !== "tree" && (ALWAYS.includes(name) || isChanged(name));
  const names = Object.keys(usual).filter(isSaid);
  const fields = Object.fromEntries(names.map((name) => [name, written(run.form[name])]));
  const text = new URLSearchParams({ tab, ...fields, target: target.name, dtype }).toString();
  if (text.length > LONGEST)
    refuse("link_too_long", { size: number(text.length, 0), most: number(LONGEST, 0) });
  return `${base()}#${text}`;
}

// The page's content as {link, note}: a step of a recording, an answer's question, or a tab
export function linkTo({ tab, run, index }) {
  const stop = tab === "lesson" && linkedStop(location);
  if (Number.isInteger(stop))
    return { link: `${base()}#stop-${stop + 1}`, note: say("link_copied_stop", { n: stop + 1 }) };
  const recording = /^recording-(.+)$/.exec(run?.id);
  if (!run?.main || !(run.form || recording) || !["watch", "race"].includes(tab))
    return { link: base() + tabHash(tab), note: say("link_copied") };
  if (recording) {
    const step = index + 1;
    const query = new URLSearchParams({ recording: recording[1], step });
    return { link: `${base()}?${query}${tabHash(tab)}`, note: say("link_copied_step", { step }) };
  }
  const isLast = questionsOf(run.main.header).length > 1;
  const note = say(isLast ? "link_copied_last" : "link_copied_question");
  return { link: askingLink(run, tab), note };
}

// A link that plays the answer on screen where it is still kept: in this browser or, for a while, on the server
export function replayLink({ run }) {
  if (run?.source !== "live" || !run.main) refuse("link_no_answer");
  return { link: `${base()}#answer=${run.id}`, note: say("link_copied_replay") };
}

// A question with its settings from a link; `tree` depends on whether sizes are in it
export function askingOf(fields) {
  const usual = { ...formDefaults(), [PREFIX]: null };
  const asking = {};
  for (const [name, text] of fields) {
    if (OTHERS.includes(name)) continue;
    if (!Object.hasOwn(usual, name) || name === "tree")
      refuse("link_unknown", { name: quoted(name) });
    asking[name] ??= read(text, usual[name]);
  }
  if (!asking.question) refuse("link_without_question");
  return { ...asking, tree: SIZES.some((name) => name in asking) ? "fixed" : "automatic" };
}

function stepOf(text) {
  if (text === null) return undefined;
  if (!/^[1-9]\d{0,5}$/.test(text)) refuse("link_step", { step: quoted(text) });
  return Number(text) - 1;
}

// The stop of the lesson in an address, #stop-5 or ?stop=5; null if there is none
function stopText({ search, hash }) {
  const found = /^#stop-(.*)$/.exec(hash);
  return found ? found[1] : new URLSearchParams(search).get("stop");
}

// The place of that stop in the lesson, the first one 0; null where the lesson has none of that name
export function linkedStop(address) {
  const text = stopText(address);
  const isStop = /^[1-9]\d?$/.test(text) && Number(text) <= given.lessonTexts.length;
  return isStop ? Number(text) - 1 : null;
}

// The tab that an address names, Watch where it names none that there is
export function tabOf({ hash }) {
  const tab = new URLSearchParams(hash.slice(1)).get("tab");
  return TABS.includes(tab) ? tab : "watch";
}

// {tab, recording, step, answer, fields} of an address, each undefined or null if missing; `fields` are a question's
export function readLink({ search, hash }) {
  const query = new URLSearchParams(search);
  const stop = stopText({ search, hash });
  if (stop !== null && linkedStop({ search, hash }) === null)
    refuse("link_stop", { stop: quoted(stop), stops: given.lessonTexts.length });
  const found = { recording: query.get("recording"), step: stepOf(query.get("step")) };
  if (!hash.includes("=")) return found; // a place on the page, or a stop, which the lesson reads
  if (hash.length > LONGEST + 1)
    refuse("link_longer", { size: number(hash.length - 1, 0), most: number(LONGEST, 0) });
  const fields = new URLSearchParams(hash.slice(1));
  const tab = fields.get("tab");
  if (tab !== null && !TABS.includes(tab)) refuse("link_tab", { tab: quoted(tab) });
  const answer = fields.get("answer");
  if (answer !== null && !RUN_ID.test(answer)) refuse("link_answer", { answer: quoted(answer) });
  const hasFields = [...fields.keys()].some((name) => !OTHERS.includes(name));
  return { ...found, tab, answer, fields: hasFields ? fields : null };
}
