// Computations of the lesson from recorded steps: trees pruned by score and verified again, other weights of the experts, measured
// times.

import { Run } from "../data/history.js";
import { metrics } from "../data/metrics.js";
import { isFromPair, weightsOf } from "../tree/evidence.js";

const MOST_RANKED = 5;

// {device, pairs: {name: {plain, drafted, lanes}}} from the text of the shipped file
export function readLesson(text) {
  const { device, recordings } = JSON.parse(text);
  const pairs = Object.fromEntries(
    Object.entries(recordings).map(([name, events]) => {
      const run = new Run(name, "recording");
      events.forEach((event) => run.take(event));
      return [name, { plain: run.plain, drafted: run.main, lanes: Object.values(run.lanes) }];
    }),
  );
  return { device, pairs };
}

// The path along which each node is the target's own choice after the one before
function judge(nodes, at = 0) {
  const next = nodes.findIndex(
    (node) => node.parent === at && node.token_id === nodes[at].target_choice,
  );
  return next < 0 ? [] : [next, ...judge(nodes, next)];
}

// The step with only the nodes in `keep` (indices; must contain all parents), verified again
export function stepWith(step, keep) {
  const order = [...keep].sort((a, b) => a - b);
  const place = new Map(order.map((i, at) => [i, at]));
  const nodes = order.map((i) => ({
    ...step.nodes[i],
    parent: i ? place.get(step.nodes[i].parent) : -1,
    source: i,
  }));
  const path = judge(nodes);
  const end = nodes[path.at(-1) ?? 0];
  return {
    ...step,
    nodes,
    accepted_path: path,
    bonus_token_id: end.target_choice,
    bonus_piece: end.target_choice_piece,
    committed_ids: [...path.map((i) => nodes[i].token_id), end.target_choice],
  };
}

// Candidates in order of probability: by score, equal ones by depth, as the tree itself is chosen
export function byScore(step) {
  const { nodes } = step;
  const order = (a, b) =>
    nodes[b].score - nodes[a].score || nodes[a].depth - nodes[b].depth || a - b;
  return [...nodes.keys()].slice(1).sort(order);
}

export const pruned = (step, candidates) =>
  stepWith(step, [0, ...byScore(step).slice(0, candidates)]);
export function withoutContrastive(step) {
  const others = [...step.nodes.keys()].filter((i) => !isFromPair(step.nodes[i]));
  return stepWith(step, others);
}
export const expectedTokens = (step) =>
  1 + step.nodes.slice(1).reduce((sum, node) => sum + Math.exp(node.score), 0);

// A copy of a lane whose step at `index` is replaced with `step`
export function laneWith(lane, index, step) {
  const other = Object.create(lane);
  other.steps = lane.steps.slice();
  other.steps[index] = step;
  return other;
}

export const drafted = (lane) => lane.steps.filter((step) => step.nodes.length > 1);
// The drafted steps, without a last step of which the end of the answer cut off tokens
export const whole = (lane) =>
  drafted(lane).filter((step) => step.committed_ids.length > step.accepted_path.length);

// Mean tokens per step if every recorded tree had so many candidates, each step judged in its own context
export const tokensAt = (lane, candidates) =>
  metrics.mean(drafted(lane), (step) => pruned(step, candidates).accepted_path.length + 1);

// The draft's favourite continuation: the best child again and again
export function favourite({ nodes }, at = 0) {
  const children = [...nodes.keys()].filter((i) => nodes[i].parent === at);
  const best = pick(children, (i) => nodes[i].score);
  return best === null ? [] : [best, ...favourite({ nodes }, best)];
}

export const edgeChance = (step, i) =>
  Math.exp(step.nodes[i].score - step.nodes[step.nodes[i].parent].score);

// A candidate's score if the router had given expert 2 the weight `second`. The score is linear in the weights, so the
// recorded contributions are enough to compute it
function mixScore(node, second) {
  const mix = [1 - second, second];
  const weights = weightsOf(node);
  const { residual_contribution: residual, expert_contributions: parts } = node.evidence;
  const shareOf = (part, e) => (mix[e] * part) / Math.max(weights[e], 1e-6);
  return parts.reduce((sum, part, e) => sum + shareOf(part, e), residual[0]);
}

// The most probable candidates of the first level
const isMixed = (node) =>
  node.depth === 1 &&
  node.evidence.expert_contributions &&
  node.evidence.residual_contribution &&
  weightsOf(node)?.length === 2;
export const firstLevel = (step) =>
  byScore(step)
    .filter((i) => isMixed(step.nodes[i]))
    .slice(0, MOST_RANKED);

export const ranked = (step, second) =>
  firstLevel(step)
    .map((i) => [i, mixScore(step.nodes[i], second)])
    .sort((a, b) => b[1] - a[1] || a[0] - b[0]);

// The share of all pairs of candidates that the two experts by themselves order differently
export function disagreement(step) {
  const members = firstLevel(step).map((i) => step.nodes[i]);
  const pairs = members.flatMap((a, at) => members.slice(at + 1).map((b) => [a, b]));
  const gap = ([a, b], second) => mixScore(a, second) - mixScore(b, second);
  return metrics.mean(pairs, (pair) => Number(gap(pair, 0) * gap(pair, 1) < 0));
}

// The number of candidates that rank differently with one expert by itself than with the router's weights
export function moved(step) {
  const own = ranked(step, ownWeight(step));
  const isMoved = ([i], place) => own[place][0] !== i;
  return [0, 1].flatMap((second) => ranked(step, second).filter(isMoved)).length;
}

export const ownWeight = (step) => step.nodes[firstLevel(step)[0]].evidence.router_weights[1];

// Linear interpolation between ascending [x, y] points; after the last point it continues with the last slope
export function interpolate(points, x) {
  if (points.length === 1 || x <= points[0][0]) return points[0][1];
  let right = points.findIndex((point) => point[0] >= x);
  if (right < 0) right = points.length - 1;
  const [[x0, y0], [x1, y1]] = [points[right - 1], points[right]];
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

export const checkMs = (profile, nodes) => interpolate(profile.verify_ms, nodes);
export const draftMs = (profile, levels) => (levels ? interpolate(profile.draft_ms, levels) : 0);

// Means over the recorded steps: milliseconds of the plain pass, draft, check and other work; τ; and the measured speedup
export function measured(pair) {
  const steps = drafted(pair.drafted);
  return {
    steps: steps.length,
    tau: metrics.tau(steps),
    plain: metrics.mean(pair.plain.steps, (step) => step.verify_ms),
    draft: metrics.mean(steps, (step) => step.draft_ms),
    check: metrics.mean(steps, (step) => step.verify_ms),
    other: metrics.mean(steps, (step) => step.other_ms),
    speedup: metrics.speedup(pair.drafted, pair.plain),
  };
}

// The item with the largest `worth`; the first one on a tie
export const pick = (items, worth) =>
  items.reduce(
    (found, item) => (found === null || worth(item) > worth(found) ? item : found),
    null,
  );
