// Files people open: a trace, or a recording of several; checked field by field before anything is drawn.

import { refuse } from "../base/dom.js";

const VERSION = 1;
// No pass of a real run takes an hour
const MOST = { name: 80, ms: 3600 * 1000, nodes: 1024, levels: 64, proposers: 64, traces: 32 };
const HEX = /^([0-9a-f]{2})*$/;
const REASONS = ["eos", "length", "context", "stop", "no_token", "stopped"];

// A rule is a test of a value, [the rule of a list's members, how many there may be], or an object with the rules of its fields
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isText = (value) => typeof value === "string";
const isTime = (value) => isNumber(value) && value >= 0 && value <= MOST.ms;
const isName = (value) => isText(value) && value.length > 0 && value.length <= MOST.name;
const isHex = (value) => isText(value) && HEX.test(value);
const orNull = (test) => (value) => value === null || test(value);
const fits = (value, rule) => misfit(value, rule, "it") === null;
const ifThere = (rule) => (value) => value === undefined || fits(value, rule);
const mapOf = (rule) => (value) => isObject(value) && fits(Object.values(value), [rule]);

// An alternative: [id, piece, log probability, null for probability 0], and such a list with the rank of the chosen one
const isChoice = (value) =>
  Array.isArray(value) && isNumber(value[0]) && isHex(value[1]) && orNull(isNumber)(value[2]);
const isRanked = (value) =>
  Array.isArray(value) && isNumber(value[0]) && value[1]?.length > 0 && fits(value[1], [isChoice]);

const HEADER = {
  schema_version: isNumber,
  method: isName,
  created: isText,
  messages: [{ role: isText, content: isText }],
  num_prompt_tokens: isNumber,
  target: isObject,
  drafter: orNull(isObject),
  device: isText,
  dtype: isText,
  proposers: [{ id: isName, label: isText, sentence: isText }, MOST.proposers],
  numerics: isText,
  device_profile: isObject,
  versions: isObject,
  sampling: isObject,
  tree: isObject,
  first_token_id: isNumber,
  first_piece: isHex,
  prefill_ms: isTime,
  special_tokens: mapOf(isText),
  num_reused_tokens: isNumber,
  queue_ms: orNull(isTime),
  first_alternatives: ifThere([isRanked]),
  prefix_ids: ifThere([Number.isInteger]),
  prefix_pieces: ifThere([isHex]),
  forced: ifThere([[Number.isInteger]]),
};
const NODE = {
  token_id: isNumber,
  piece: isHex,
  parent: isNumber,
  depth: isNumber,
  draft_pass: isNumber,
  score: isNumber,
  proposer: isName,
  also_proposed_by: [isText],
  evidence: mapOf([isNumber]),
  target_choice: isNumber,
  target_choice_piece: isHex,
  margin: isNumber,
  draft_prob: orNull(isNumber),
  target_prob: orNull(isNumber),
};
const STEP = {
  index: isNumber,
  nodes: [NODE, MOST.nodes],
  accepted_path: [isNumber],
  bonus_token_id: orNull(isNumber),
  bonus_piece: isHex,
  committed_ids: [isNumber],
  draft_ms: isTime,
  verify_ms: isTime,
  other_ms: isTime,
  alternatives: ifThere([isRanked]),
  plan: {
    levels: isNumber,
    nodes: isNumber,
    why: isText,
    curve: [(point) => fits(point, [isNumber]) && point.length === 2],
  },
};
const TRACE = {
  steps: [STEP],
  header: HEADER,
  end_reason: (value) => value === null || value === undefined || REASONS.includes(value),
};

// Where a value breaks a rule; null where it keeps it
function misfit(value, rule, where) {
  if (typeof rule === "function") return rule(value) ? null : where;
  const [one, most = Infinity] = Array.isArray(rule) ? rule : [];
  if (one ? !Array.isArray(value) || value.length > most : !isObject(value)) return where;
  for (const name of Object.keys(one ? value : rule)) {
    const found = misfit(value[name], one || rule[name], where ? `${where}.${name}` : name);
    if (found) return found;
  }
  return null;
}

// Contradictions within a step: each node must follow its parent, and the step must add its accepted path and the bonus token,
// which only the end of the answer may cut
function contradiction(
  { index, nodes, accepted_path: path, bonus_token_id: bonus, committed_ids: committed },
  place,
  { length },
) {
  const stands = ({ parent, depth }, i) =>
    depth <= MOST.levels &&
    (i ? parent < i && depth === nodes[parent]?.depth + 1 : parent === -1 && !depth);
  if (index !== place) return "index";
  if (!nodes.length || !nodes.every(stands))
    return `nodes.${nodes.findIndex((node, i) => !stands(node, i))}.parent`;
  if (!path.every((i, at) => i > 0 && nodes[i]?.parent === (at ? path[at - 1] : 0)))
    return "accepted_path";
  const whole = [...path.map((i) => nodes[i].token_id), bonus];
  const isPrefix = committed.every((id, i) => id === whole[i]);
  const isComplete = committed.length === whole.length;
  return isPrefix && (isComplete || place === length - 1) ? null : "committed_ids";
}

const unfit = (field) => refuse("not_trace_field", { field });

function checkedTrace(trace) {
  const found = trace.header?.schema_version;
  if (found !== undefined && found !== VERSION) refuse("trace_version", { found });
  const where = misfit(trace, TRACE, "");
  if (where) unfit(where);
  const { header, steps, end_reason } = trace;
  if (header.prefix_ids?.length !== header.prefix_pieces?.length) unfit("header.prefix_pieces");
  steps.map(contradiction).forEach((field, i) => field && unfit(`steps.${i}.${field}`));
  return { header, steps, end_reason };
}

// The traces by method in a file's text; throws Trouble
export function readTraceFile(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    refuse("not_trace_json");
  }
  const { branches = [], shown = 0 } = value || {};
  const isList = Array.isArray(branches) && branches.length <= MOST.traces;
  if (!isList || (branches.length && !branches[shown])) unfit("branches");
  return { ...recordingIn(value), branches: branches.map((one) => recordingIn(one).traces), shown };
}

function recordingIn(value) {
  if (!isObject(value)) unfit("traces");
  const isNamed = isObject(value.traces) && Object.keys(value.traces).length > 0;
  const traces = isNamed ? Object.entries(value.traces) : [[value.header?.method, value]];
  if (traces.length > MOST.traces || !traces.every(([, trace]) => isObject(trace))) unfit("traces");
  const checked = traces.map(([name, trace]) => [name, checkedTrace(trace)]);
  const title = isNamed && isText(value.title) ? value.title : null;
  return { title, traces: Object.fromEntries(checked) };
}
