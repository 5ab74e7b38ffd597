// The card of one token: its state, the reason, and the numbers of draft, target and experts.

import { filledBar, h, percent, say } from "../base/dom.js";
import { placeCard } from "../base/frame.js";
import { nameIn, nameOf, proposerIn } from "../data/history.js";
import { cardNote, evidenceNotes } from "./evidence.js";
import { stateOf } from "./layout.js";
import { markerSample } from "./marker.js";

const quoted = (name) => `“${name}”`;

// The one sentence that explains a node's fate
export function reasonOf(lane, step, i) {
  const { nodes } = step;
  const state = stateOf(step, i);
  if (["root", "accepted", "bonus", "cut"].includes(state))
    return say(i === "bonus" && state === "cut" ? "why_bonus_cut" : `why_${state}`);
  const parent = nodes[nodes[i].parent];
  if (state === "refused") {
    const chosen = say("why_refused", {
      choice: quoted(nameOf(lane, parent.target_choice, parent.target_choice_piece)),
    });
    const by = nodes[i].forbidden_by;
    return by ? `${say(by === "grammar" ? "why_grammar" : "why_setting")} ${chosen}` : chosen;
  }
  if (parent.target_choice === nodes[i].token_id) return say("why_would_agree");
  let ancestor = nodes[i].parent;
  while (stateOf(step, ancestor) !== "refused") ancestor = nodes[ancestor].parent;
  return say("why_not_reached", {
    ancestor: quoted(nameOf(lane, nodes[ancestor].token_id, nodes[ancestor].piece)),
  });
}

const bar = (name, value, kind) =>
  h(
    "div.card-bar",
    h("span.bar-name", name),
    filledBar(kind, value === null ? 0 : Math.max(0.005, value)),
    h("span.bar-value", percent(value)),
  );

// The content of the card for node `i` in a phase, as elements
function cardContent(lane, index, i, phase) {
  const step = lane.steps[index];
  const node = i ? step.nodes[i] : null; // a candidate, neither the root nor the target's own token
  const state = phase === 1 && node ? "proposed" : stateOf(step, i);
  const proposer = proposerIn(lane, index, i);
  const head = h(
    "div",
    { class: `card-head ${proposer.classes}` },
    markerSample(proposer),
    h("bdi.mono", nameIn(lane, index, i)),
    node && h("span", { title: proposer.sentence }, proposer.label),
    h("span", { class: `card-state ${state}` }, say(`state_${state}`)),
  );
  if (!node) return [head, h("p", reasonOf(lane, step, i))];
  const also = node.also_proposed_by.map((id) => lane.proposers.named(id).label).join(", ");
  const { temperature, seed } = lane.header.sampling;
  const position = lane.header.num_prompt_tokens + lane.countAfter(index - 1) + node.depth - 1;
  const place = { level: node.depth, pass: node.draft_pass, token: node.token_id };
  return [
    head,
    phase > 1 && h("p", reasonOf(lane, step, i)),
    bar(say("draft_bar"), node.draft_prob, `fill-${proposer.hue}`),
    phase > 1 && bar(say("target_bar"), node.target_prob, "fill-ink"),
    cardNote(say("path_estimate", { percent: percent(Math.exp(node.score)) })),
    ...evidenceNotes(lane, step, node),
    also && cardNote(say("also_by", { names: also })),
    cardNote(say(node.draft_pass ? "place" : "place_free", place)),
    temperature > 0 && cardNote(say("drawn_with", { seed, position })),
  ].filter(Boolean);
}

export class Card {
  constructor(host) {
    this.host = host;
    this.box = h("div.jk-card", { role: "status", hidden: true });
    this.pinned = null;
    host.append(this.box);
  }

  // The content of the card; set before each drawing of the tree
  about(lane, index, phase) {
    const same = this.lane === lane && this.index === index;
    const told = this.phase === phase;
    Object.assign(this, { lane, index, phase });
    if (!same) this.close();
    else if (!told && this.pinned !== null) this.fill(this.pinned);
  }

  fill(id) {
    this.box.replaceChildren(
      h(
        "button.card-close.icon-button",
        {
          "aria-label": say("close"),
          onclick: () => this.close(),
        },
        "×",
      ),
      ...cardContent(this.lane, this.index, id, this.phase),
    );
  }

  // Next to its node; a pinned card is below the tree if there is an element below it
  place(near) {
    const origin = this.host.getBoundingClientRect();
    const tree = this.pinned !== null && this.host.querySelector(":scope > .tree-room");
    placeCard(this.box, near.getBoundingClientRect(), {
      origin,
      right: origin.right,
      under: tree ? tree.getBoundingClientRect().bottom : undefined,
      end: this.host.closest("dialog, .jk-view").getBoundingClientRect().bottom,
    });
  }

  show(id, near) {
    if (this.pinned !== null) return;
    this.fill(id);
    this.box.hidden = false;
    this.place(near);
  }

  pin(id, near) {
    const same = this.pinned === id;
    this.close();
    if (same) return;
    this.show(id, near);
    this.pinned = id;
    this.box.classList.add("pinned");
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
