// Every number on the page is computed from steps; the page shows its definition.

import { sum } from "../base/dom.js";
import { deliveredPath } from "./history.js";

const FEWEST_TOKENS = 8;
const WINDOW_SECONDS = 2;

const mean = (steps, of) => (steps.length ? sum(steps.map(of)) / steps.length : null);

// Tokens of the answer per step
const tau = (steps) => mean(steps, (step) => step.committed_ids.length);
// The same before any cut at the end of the answer: accepted per step, plus one
const tauDrafted = (steps) => mean(steps, (step) => step.accepted_path.length + 1);

function testedDepth(step) {
  const kept = new Set([0, ...step.accepted_path]);
  return step.nodes.reduce(
    (most, node, i) => (i && kept.has(node.parent) ? Math.max(most, node.depth) : most),
    0,
  );
}

// Accepted levels ÷ checked levels
function acceptance(steps) {
  const tested = sum(steps.map(testedDepth));
  return tested ? sum(steps.map((step) => step.accepted_path.length)) / tested : null;
}

// Accepted candidates of the answer by proposer
const acceptedByProposer = (steps) =>
  Map.groupBy(
    steps.flatMap((step) => deliveredPath(step).map((i) => step.nodes[i])),
    (node) => node.proposer,
  );

// Tokens after the first over own decode seconds
function speed(lane, count = lane.steps.length) {
  if (!count || lane.counts[count - 1] - lane.lead + 1 < FEWEST_TOKENS) return null;
  return (lane.counts[count - 1] - lane.lead) / lane.seconds[count - 1];
}

// Speed over the last two seconds of own time, at the end of a step
function smoothSpeed(lane, step) {
  const now = lane.seconds[step];
  const from = Math.max(0, now - WINDOW_SECONDS);
  return (lane.counts[step] - lane.countAt(from)) / Math.min(WINDOW_SECONDS, now);
}

// The index of the first token that differs between two answers, null if none does
function firstDifference(left, right) {
  const at = left.tokens.findIndex(
    ({ id }, i) => i < right.tokens.length && id !== right.tokens[i].id,
  );
  return at < 0 ? null : at;
}

// Where the lanes' answers part: as above, and where one of two finished answers is the shorter
function partsAt({ main, plain }) {
  const different = firstDifference(main, plain);
  const lengths = [main.tokens.length, plain.tokens.length];
  const whole = [main, plain].every((lane) => lane.endReason && lane.endReason !== "stopped");
  return different === null && whole && lengths[0] !== lengths[1]
    ? Math.min(...lengths)
    : different;
}

// Tokens both lanes have and agree on, as far as the first lane was after so many steps
const commonTokens = (lane, plain, steps = lane.steps.length) =>
  Math.min(
    lane.countAfter(steps - 1),
    plain.tokens.length,
    firstDifference(lane, plain) ?? Infinity,
  );

// Plain seconds over the drafting lane's to the same token; null until both have eight
function speedup(lane, plain, steps) {
  if (!plain || lane === plain) return null;
  const common = commonTokens(lane, plain, steps);
  if (common - lane.lead + 1 < FEWEST_TOKENS) return null;
  const mine = lane.secondsTo(common);
  return mine ? plain.secondsTo(common) / mine : null;
}

// The margin of the choice that made token `index` of a lane; null for the first token
function marginAt(lane, index) {
  const token = lane.tokens[index];
  if (!token || token.step < 0) return null;
  const step = lane.steps[token.step];
  const before = token.level === 1 ? 0 : step.accepted_path[token.level - 2];
  return step.nodes[before] ? step.nodes[before].margin : null;
}

export const metrics = {
  mean,
  tau,
  tauDrafted,
  acceptance,
  acceptedByProposer,
  speed,
  smoothSpeed,
  partsAt,
  speedup,
  marginAt,
  FEWEST_TOKENS,
};
