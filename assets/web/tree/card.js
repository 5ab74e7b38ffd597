// The card of one token: what it is, why the target kept or refused it, and the numbers of draft, target and experts.

import { filledBar, h, percent, say } from "../base/dom.js";
import { placeCard } from "../base/frame.js";
import { bonusDelivered, nameOf } from "../data/history.js";
import { TARGET } from "../data/methods.js";
import { evidenceNotes } from "./evidence.js";
import { stateOf } from "./layout.js";
import { markerSample } from "./marker.js";

const quoted = (name) => `“${name}”`;

// The one sentence that explains a node's fate
function reason(lane, step, i) {
  const nodes = step.nodes;
  const state = stateOf(step, i);
  if (state === "root") return say("why_root");
  if (state === "accepted") return say("why_accepted");
  if (state === "cut") return say("why_cut");
  const parent = nodes[nodes[i].parent];
  if (state === "refused") {
    const chosen = say("why_refused", { choice: quoted(nameOf(lane, parent.target_choice, parent.target_choice_piece)) });
    const by = nodes[i].forbidden_by;
    return by ? `${say(by === "grammar" ? "why_grammar" : "why_setting")} ${chosen}` : chosen;
  }
  if (parent.target_choice === nodes[i].token_id) return say("why_would_agree");
  let ancestor = nodes[i].parent;
  while (stateOf(step, ancestor) !== "refused") ancestor = nodes[ancestor].parent;
  return say("why_not_reached", { ancestor: quoted(nameOf(lane, nodes[ancestor].token_id, nodes[ancestor].piece)) });
}

function bar(name, value, kind) {
  return h("div", { class: "card-bar" }, h("span", { class: "bar-name" }, name),
    filledBar(kind, value === null ? 0 : Math.max(0.005, value)),
    h("span", { class: "bar-value" }, percent(value)));
}

function place(lane, index, step, i) {
  const node = step.nodes[i];
  const lines = [node.draft_pass ? say("place", { level: node.depth, pass: node.draft_pass, token: node.token_id })
    : say("place_free", { level: node.depth, token: node.token_id })];
  const { temperature, seed } = lane.header.sampling;
  if (temperature > 0) {
    const position = lane.header.num_prompt_tokens + lane.countAfter(index - 1) + node.depth - 1;
    lines.push(say("drawn_with", { seed, position }));
  }
  return lines.map((line) => h("div", { class: "card-note" }, line));
}

// Everything the card says about node `i` in a phase, as elements
function cardContent(lane, index, i, phase) {
  const step = lane.steps[index];
  if (i === "bonus") {
    return [h("div", { class: "card-head" }, markerSample(TARGET), h("bdi", { class: "mono" },
      nameOf(lane, step.bonus_token_id, step.bonus_piece)), h("span", { class: "card-state" }, say(bonusDelivered(step) ? "state_bonus" : "state_cut"))),
      h("p", null, say(bonusDelivered(step) ? "why_bonus" : "why_bonus_cut"))];
  }
  const node = step.nodes[i];
  const state = phase === 1 && i ? "proposed" : stateOf(step, i);
  const token = lane.tokens[lane.countAfter(index - 1) - 1];
  const proposer = lane.proposers.of(node);
  const head = h("div", { class: `card-head ${proposer.classes}` }, markerSample(proposer),
    h("bdi", { class: "mono" }, i ? nameOf(lane, node.token_id, node.piece) : nameOf(lane, token.id, token.bytes)),
    i ? h("span", { title: proposer.sentence }, proposer.label) : null,
    h("span", { class: `card-state ${state}` }, say(`state_${state}`)));
  if (!i) return [head, h("p", null, say("why_root"))];
  const parts = [head];
  if (phase > 1) parts.push(h("p", null, reason(lane, step, i)));
  parts.push(bar(say("draft_bar"), node.draft_prob, `fill-${proposer.hue}`));
  if (phase > 1) parts.push(bar(say("target_bar"), node.target_prob, "fill-ink"));
  parts.push(h("div", { class: "card-note" }, say("path_estimate", { percent: percent(Math.exp(node.score)) })));
  parts.push(...evidenceNotes(lane, step, node));
  if (node.also_proposed_by.length) {
    const names = node.also_proposed_by.map((id) => lane.proposers.named(id).label).join(", ");
    parts.push(h("div", { class: "card-note" }, say("also_by", { names })));
  }
  parts.push(...place(lane, index, step, i));
  return parts;
}

export class Card {
  constructor(host) {
    this.host = host;
    this.box = h("div", { class: "jk-card", role: "status", hidden: true });
    this.pinned = null;
    host.append(this.box);
  }

  // What the card talks about; set before each drawing of the tree
  about(lane, index, phase) {
    const same = this.lane === lane && this.index === index;
    const told = this.phase === phase;
    Object.assign(this, { lane, index, phase });
    if (!same) this.close();
    else if (!told && this.pinned !== null) this.fill(this.pinned);
  }

  fill(id) {
    this.box.replaceChildren(h("button", { class: "card-close icon-button", "aria-label": say("close"), onclick: () => this.close() }, "×"),
      ...cardContent(this.lane, this.index, id, this.phase));
  }

  // Beside what it tells of; a card that stays stands below the tree, where there is something below it
  place(near) {
    const origin = this.host.getBoundingClientRect();
    const tree = this.pinned !== null && this.host.querySelector(":scope > .tree-room");
    placeCard(this.box, near.getBoundingClientRect(), { origin, right: origin.right, under: tree ? tree.getBoundingClientRect().bottom : undefined,
      end: this.host.closest("dialog, .jk-view").getBoundingClientRect().bottom });
  }

  show(id, near) {
    if (this.pinned !== null) return;
    this.box.replaceChildren(...cardContent(this.lane, this.index, id, this.phase));
    this.box.hidden = false;
    this.place(near);
  }

  pin(id, near) {
    const same = this.pinned === id;
    this.close();
    if (same) return;
    this.pinned = id;
    this.box.classList.add("pinned");
    this.fill(id);
    this.box.hidden = false;
    this.place(near);
  }

  leave() {
    if (this.pinned === null) this.box.hidden = true;
  }

  close() {
    this.pinned = null;
    this.box.classList.remove("pinned");
    this.box.hidden = true;
  }
}

export const reasonOf = reason;
