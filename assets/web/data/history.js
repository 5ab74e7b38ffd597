// Runs made of lanes, lanes made of a header and steps in the schema of a saved trace. Live updates, shipped recordings and
// opened files all use these classes.

import { given } from "../base/dom.js";
import { fromHex, label, unitsOf } from "../base/pieces.js";
import { Proposers, TARGET, isPlain, methodTitle } from "./methods.js";
import { StepReader } from "./packed.js";

const OTHER_LOOKS = 3;

// Levels of a step's tree
export const depthOf = (step) => step.nodes.reduce((most, node) => Math.max(most, node.depth), 0);

// Branches of a step's tree
export const leavesOf = ({ nodes }) =>
  nodes.length - new Set(nodes.map((node) => node.parent)).size + 1;

// Passes of the draft that made its tree
export const passesOf = (step) =>
  step.nodes.reduce((most, node) => Math.max(most, node.draft_pass), 0);

// The nodes from the root's child to node `i`; none for the root
export const pathTo = (nodes, i) => (i > 0 ? [...pathTo(nodes, nodes[i].parent), i] : []);

// The node after which the target chose on: the last accepted one, or the root
export const endOf = (step) => step.accepted_path.at(-1) ?? 0;
// The part of a step's accepted path that is in the answer: an end token or a limit may cut it
export const deliveredPath = (step) => step.accepted_path.slice(0, step.committed_ids.length);
// Returns whether the target added a token of its own: no token can follow if the settings forbid all of them
export const hasBonus = (step) => step.bonus_token_id !== null;
// Returns whether the answer includes the bonus token
export const bonusDelivered = (step) => step.committed_ids.length > step.accepted_path.length;

// The visitor's questions in a conversation, the last question last
export const questionsOf = (header) =>
  header.messages.filter((message) => message.role === "user").map((message) => message.content);

export class Lane {
  // `name` is the requested name of the lane; the header has the method that ran
  constructor(header, name) {
    const { method } = header;
    Object.assign(this, {
      header,
      name,
      method,
      title: methodTitle(method),
      isPlain: isPlain(method),
      steps: [],
      tokens: [],
      endReason: null,
      proposers: new Proposers(header.proposers),
      reader: new StepReader(header),
    });
    this.seconds = []; // own clock at the end of each step
    this.deepest = 0; // levels of the deepest tree so far
    this.widest = 1; // rows that the widest one takes, the target's own token included
    this.counts = []; // tokens in the answer after each step, the first one included
    const forced = new Set((header.forced || []).map(([place]) => place));
    const ofNoStep = { step: -1, level: 0, node: -1, proposer: TARGET };
    (header.prefix_ids || []).forEach((id, i) => {
      const piece = header.prefix_pieces[i];
      this.addToken({ ...ofNoStep, id, piece, given: true, forced: forced.has(i) });
    });
    this.lead = this.tokens.length + 1; // tokens before the first step
    this.addToken({ ...ofNoStep, id: header.first_token_id, piece: header.first_piece });
  }

  // Minutes that the lane's head was trained; undefined for heads that did not ship and for lanes without one
  get headMinutes() {
    const { drafter } = this.header;
    return drafter ? new Map(Object.entries(given.headMinutes)).get(drafter.name) : undefined;
  }

  addToken(token) {
    const special = this.header.special_tokens[String(token.id)] || null;
    this.tokens.push({ ...token, bytes: fromHex(token.piece), special });
  }

  add(step) {
    this.steps.push(step);
    step.nodes.forEach((node) => this.proposers.of(node)); // proposers that are not in the header get the next free place
    step.committed_ids.forEach((id, i) => {
      const node = step.accepted_path[i] ?? -1;
      const source = step.nodes[node];
      const piece = source ? source.piece : step.bonus_piece;
      const proposer = source ? this.proposers.of(source) : TARGET;
      this.addToken({ id, piece, step: step.index, level: i + 1, node, proposer });
    });
    this.seconds.push(this.clock + (step.draft_ms + step.verify_ms + step.other_ms) / 1000);
    this.counts.push(this.tokens.length);
    this.deepest = Math.max(this.deepest, depthOf(step));
    this.widest = Math.max(this.widest, leavesOf(step) + 1);
  }

  // Alternatives of a token as {rank, tokens: [[id, piece, logprob], …]}, the chosen one first; null if unknown
  alternativesAt(index) {
    const { step, level, given: begun } = this.tokens[index];
    const found = begun
      ? null
      : step < 0
        ? this.header.first_alternatives?.[0]
        : this.steps[step].alternatives?.[level - 1];
    return found ? { rank: found[0], tokens: found[1] } : null;
  }

  get clock() {
    return this.seconds.at(-1) ?? 0;
  }

  // How many tokens had been written when this lane's own clock stood at `time`
  countAt(time) {
    return this.countAfter(this.stepsAt(time) - 1);
  }

  stepsAt(time) {
    return this.seconds.findLastIndex((seconds) => seconds <= time + 1e-9) + 1;
  }

  countAfter(step) {
    return step < 0 ? this.lead : this.counts[Math.min(step, this.counts.length - 1)];
  }

  // Own seconds at which token number `count` (1 = the first) was there
  secondsTo(count) {
    if (count <= this.lead) return 0;
    const step = this.counts.findIndex((have) => have >= count);
    return step < 0 ? null : this.seconds[step];
  }
}

export class Run {
  // source: "live", "recording" or "opened"; `stored`: the database record of a turn whose lanes are not loaded
  constructor(id, source, stored = null) {
    Object.assign(this, { id, source, stored, finished: false, waiting: null, title: null });
    this.lanes = Object.create(null); // names come from files
    // As a node of a chat's tree, see chat/tree.js; `branches`: the siblings, this one among them
    Object.assign(this, { parent: null, children: [], chosen: null, branches: [this] });
    this.reopen();
  }

  // The answer continues after it had been taken for ended; `ended` resolves when it ends
  reopen() {
    this.cut?.forEach((lane) => (lane.endReason = null));
    Object.assign(this, { finished: false, cut: [] });
    this.ended = new Promise((resolve) => (this.tellEnded = resolve));
  }

  // The lane that the tree and the answer show: the first requested one that drafts
  get main() {
    const all = Object.values(this.lanes);
    return all.find((lane) => !lane.isPlain) || all[0] || null;
  }

  get plain() {
    return Object.values(this.lanes).find((lane) => lane.isPlain) || null;
  }

  // Lanes in display order: plain decoding, the lane of the tree, the others
  get ordered() {
    return [...new Set([this.plain, this.main, ...Object.values(this.lanes)])].filter(Boolean);
  }

  // How a lane looks among the others: "plain", "main", "other-0", "other-1", …
  roleOf(lane) {
    if (lane === this.plain) return "plain";
    if (lane === this.main) return "main";
    const others = this.ordered.filter((one) => one !== this.plain && one !== this.main);
    return `other-${others.indexOf(lane) % OTHER_LOOKS}`;
  }

  // Alternatives of a token in this answer or in a sibling with the same tokens before it
  alternativesAt(index) {
    const { tokens, header } = this.main;
    const prompt = JSON.stringify(header.messages);
    const alike = ({ main }) =>
      main &&
      tokens.slice(0, index).every(({ id }, i) => main.tokens[i]?.id === id) &&
      index < main.tokens.length &&
      main.header.sampling.temperature === header.sampling.temperature &&
      JSON.stringify(main.header.messages) === prompt;
    const runs = [this, ...this.branches].filter(alike);
    return runs.map(({ main }) => main.alternativesAt(index)).find(Boolean) || null;
  }

  get question() {
    const header = this.main?.header;
    if (!header) return this.stored?.question ?? this.form?.question ?? "";
    return questionsOf(header).at(-1) ?? header.raw_prompt ?? "";
  }

  // The text of the answer so far
  get answer() {
    return this.main ? textOf(this.main, this.main.tokens.length) : (this.stored?.answer ?? "");
  }

  get endReason() {
    return this.main ? this.main.endReason : this.stored?.endReason;
  }

  // Tokens of the prompt and the answer together
  get numTokens() {
    const { main, stored } = this;
    return main ? main.header.num_prompt_tokens + main.tokens.length : (stored?.numTokens ?? 0);
  }

  // Ends the run; lanes that were not done are stopped
  stop() {
    if (this.finished) return;
    this.cut = Object.values(this.lanes).filter((lane) => !lane.endReason);
    this.cut.forEach((lane) => (lane.endReason = "stopped"));
    Object.assign(this, { finished: true, waiting: null });
    this.tellEnded();
  }

  // One event as app/serving/packing.py packs it
  take([kind, name, payload]) {
    if (kind === "wait") this.waiting = payload;
    else if (kind === "header") {
      this.waiting = null;
      this.lanes[name] ??= new Lane(payload, name);
    } else if (kind === "step") {
      const lane = this.lanes[name];
      lane.add(lane.reader.read(payload));
    } else if (kind === "end") {
      if (this.lanes[name]) this.lanes[name].endReason = payload;
    } else this.stop();
  }
}

export function runFromTraces(id, source, traces, title) {
  const run = new Run(id, source);
  readTraces(run, traces);
  run.stop();
  run.title = title || null;
  return run;
}

// Adds the lanes of traces to a run
export function readTraces(run, traces) {
  for (const [name, { header, steps, end_reason }] of Object.entries(traces)) {
    const lane = (run.lanes[name] = new Lane(header, name));
    steps.forEach((step) => lane.add(step));
    lane.endReason = end_reason;
  }
}

// The first `count` tokens as text
export function textOf(lane, count) {
  const isHidden = ({ state }) => state === "open" && !lane.endReason;
  const units = unitsOf(lane.tokens.slice(0, count));
  return units.map((unit) => (isHidden(unit) ? "" : unit.text)).join("");
}

export function tracesOf(run) {
  const traceOf = ({ header, steps, endReason }) => ({ header, steps, end_reason: endReason });
  return Object.fromEntries(Object.entries(run.lanes).map(([name, lane]) => [name, traceOf(lane)]));
}

const labels = new Map(); // by a token's bytes, as hex

export function nameOf(lane, id, hex) {
  const special = lane.header.special_tokens[String(id)];
  if (special) return `‹${special.replace(/^<\|?|\|?>$/g, "")}›`;
  if (!labels.has(hex)) labels.set(hex, label(fromHex(hex)));
  return labels.get(hex);
}

// The name of a node of a step's tree, the root's and that of the target's own token ("bonus") among them
export function nameIn(lane, index, i) {
  const step = lane.steps[index];
  if (i === "bonus") return nameOf(lane, step.bonus_token_id, step.bonus_piece);
  return i ? nameOf(lane, step.nodes[i].token_id, step.nodes[i].piece) : rootName(lane, index);
}

export const proposerIn = (lane, index, i) =>
  i === "bonus" ? TARGET : lane.proposers.of(lane.steps[index].nodes[i]);

// A name as a tree shows it: the space before a word is a gap
export const shown = (name) => name.replace(/^␣(?!×|$)/, " ");

// The root's name: the last kept tokens before a step
export function rootName(lane, index, count = 1) {
  const before = lane.countAfter(index - 1);
  const tokens = lane.tokens.slice(Math.max(0, before - count), before);
  return tokens.map((token) => nameOf(lane, token.id, token.piece)).join("");
}
