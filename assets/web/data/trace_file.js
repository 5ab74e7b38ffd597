// Files people open: a trace, or a recording of several; checked field by field before anything is drawn.

import { say } from "../base/dom.js";

const VERSION = 1;
// No pass of a real run takes an hour
const MOST = { bytes: 20 * 1024 * 1024, name: 80, ms: 3600 * 1000, nodes: 1024, levels: 64, proposers: 64, traces: 32 };
const HEX = /^([0-9a-f]{2})*$/;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isText = (value) => typeof value === "string";
const isTime = (value) => isNumber(value) && value >= 0 && value <= MOST.ms;
const isName = (value) => isText(value) && value.length > 0 && value.length <= MOST.name;
const isHex = (value) => isText(value) && HEX.test(value);
const listOf = (fits, most = Infinity) => (value) => Array.isArray(value) && value.length <= most && value.every(fits);
// Records, or lists that stand for one
const shaped = (rules) => (value) => (isObject(value) || (Array.isArray(rules) && Array.isArray(value)))
  && Object.entries(rules).every(([name, fits]) => fits(value[name]));
const [isNumbers, isTexts] = [listOf(isNumber), listOf(isText)];
const isMessages = listOf(shaped({ role: isText, content: isText }));
const isProposers = listOf(shaped({ id: isName, label: isText, sentence: isText }), MOST.proposers);
const isCurve = listOf((point) => isNumbers(point) && point.length === 2);

const isReason = (value) => value === null || value === undefined || ["eos", "length", "context", "stop", "stopped"].includes(value);
const isDrafter = (value) => value === null || isObject(value);

const HEADER = { method: isName, created: isText, messages: isMessages, num_prompt_tokens: isNumber, target: isObject,
  drafter: isDrafter, proposers: isProposers, device: isText, dtype: isText, numerics: isText, device_profile: isObject,
  versions: isObject, sampling: isObject, tree: isObject, first_token_id: isNumber, first_piece: isHex, prefill_ms: isTime,
  special_tokens: (value) => isObject(value) && isTexts(Object.values(value)),
  num_reused_tokens: isNumber, queue_ms: (value) => value === null || isTime(value) };
const STEP = { index: isNumber, nodes: Array.isArray, accepted_path: isNumbers, bonus_token_id: isNumber, bonus_piece: isHex,
  committed_ids: isNumbers, draft_ms: isTime, verify_ms: isTime, other_ms: isTime, plan: isObject };
const NODE = { token_id: isNumber, piece: isHex, parent: isNumber, depth: isNumber, draft_pass: isNumber, score: isNumber,
  proposer: isName, also_proposed_by: isTexts, evidence: (value) => isObject(value) && Object.values(value).every(isNumbers),
  target_choice: isNumber, target_choice_piece: isHex, margin: isNumber };

// Of an answer that was forked, and of what else could have come
const isIds = listOf(Number.isInteger);
const isChoices = (value) => listOf(shaped([isNumber, isHex, isNumber]))(value) && value.length > 0;
const isRanked = listOf(shaped([isNumber, isChoices]));
const IF_THERE = { first_alternatives: isRanked, alternatives: isRanked, prefix_ids: isIds, prefix_pieces: listOf(isHex),
  forced: listOf(isIds) };

export class TraceFileError extends Error {}
const fail = (key, values) => {
  throw new TraceFileError(say(key, values));
};
const unfit = (reason) => fail("not_trace_shape", { reason });

function check(value, rules, where) {
  if (!isObject(value)) unfit(`${where} is not an object`);
  for (const field of Object.keys(rules)) if (!(field in value)) fail("not_trace_field", { field });
  for (const [field, fits] of Object.entries({ ...IF_THERE, ...rules })) {
    if (field in value && !fits(value[field])) unfit(`“${field}” of ${where} has an unexpected value`);
  }
}

// What a step adds is its accepted path and the target's token; only the end of the answer may cut it short
function checkCommitted(step, where, isLast) {
  const whole = [...step.accepted_path.map((i) => step.nodes[i].token_id), step.bonus_token_id];
  const { committed_ids: committed } = step;
  const starts = committed.length > 0 && committed.length <= whole.length && committed.every((id, i) => id === whole[i]);
  if (!starts || (committed.length < whole.length && !isLast)) unfit(`“committed_ids” of ${where} contradicts its accepted path`);
}

function checkStep(step, position, steps) {
  const isLast = position === steps.length - 1;
  const where = `step ${position}`;
  check(step, STEP, where);
  if (step.index !== position) unfit(`${where} says it is step ${step.index}`);
  if (!step.nodes.length || step.nodes.length > MOST.nodes) {
    unfit(`${where} has ${step.nodes.length} nodes, expected 1 to ${MOST.nodes}`);
  }
  step.nodes.forEach((node, i) => {
    check(node, NODE, `node ${i} of ${where}`);
    const depth = i === 0 ? 0 : (step.nodes[node.parent] || {}).depth + 1;
    if ((i === 0) !== (node.parent === -1) || node.parent >= i || node.depth !== depth) {
      unfit(`node ${i} of ${where} does not fit its parent`);
    }
    if (depth > MOST.levels) unfit(`${where} has more than ${MOST.levels} levels`);
    for (const name of ["draft_prob", "target_prob"]) {
      if (node[name] !== null && !isNumber(node[name])) unfit(`“${name}” of node ${i} of ${where} is not a number`);
    }
  });
  let before = 0;
  for (const i of step.accepted_path) {
    if (!step.nodes[i] || step.nodes[i].parent !== before) unfit(`the accepted path of ${where} is no path`);
    before = i;
  }
  checkCommitted(step, where, isLast);
  check(step.plan, { levels: isNumber, nodes: isNumber, why: isText, curve: isCurve }, `the plan of ${where}`);
}

function checkedTrace(trace) {
  check(trace, { header: () => true, steps: Array.isArray }, "the answer");
  const { header, steps, end_reason } = trace;
  const found = isObject(header) ? header.schema_version : undefined;
  if (found !== VERSION) fail("trace_version", { found });
  check(header, HEADER, "the header");
  if (header.prefix_ids?.length !== header.prefix_pieces?.length) unfit("“prefix_pieces” of the header has another length than “prefix_ids”");
  if (!isReason(end_reason)) unfit("“end_reason” has an unexpected value");
  steps.forEach(checkStep);
  return { header, steps, end_reason };
}

// The traces by method in a file's text; throws TraceFileError with a sentence for people
export function readTraceFile(text) {
  if (text.length > MOST.bytes) fail("file_too_large", { size: Math.ceil(text.length / 1024 / 1024) });
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    fail("not_trace_json");
  }
  const { branches = [], shown = 0 } = value || {};
  if (!Array.isArray(branches) || branches.length > MOST.traces) unfit(`“branches” is no list of at most ${MOST.traces}`);
  if (branches.length && !branches[shown]) unfit("“shown” is no place in “branches”");
  return { ...recordingIn(value), branches: branches.map((one) => recordingIn(one).traces), shown };
}

function recordingIn(value) {
  if (!isObject(value)) unfit("expected an object");
  if (isObject(value.traces) && Object.keys(value.traces).length) {
    const entries = Object.entries(value.traces);
    if (entries.length > MOST.traces) unfit(`${entries.length} traces, expected at most ${MOST.traces}`);
    const traces = entries.map(([name, trace]) => [name, checkedTrace(trace)]);
    return { title: isText(value.title) ? value.title : null, traces: Object.fromEntries(traces) };
  }
  const trace = checkedTrace(value);
  return { title: null, traces: { [trace.header.method]: trace } };
}

export const LARGEST_TRACE_BYTES = MOST.bytes;
