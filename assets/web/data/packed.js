// Steps as app/serving/packing.py writes them, read back into the schema of a saved trace, where bytes are hex.

import { fromText, toHex } from "../base/pieces.js";

const hexOf = (piece) => (Array.isArray(piece) ? piece[0] : toHex(fromText(piece)));

// Reads the steps of one lane in order; each holds only what earlier ones did not say
export class StepReader {
  constructor(header) {
    this.proposers = header.proposers.map((proposer) => proposer.id);
    this.pieces = new Map();
    this.plan = {};
  }

  // The step, or null where it is not the one with the wanted index
  read(packed, wanted) {
    if (packed.index !== wanted) return null;
    packed.new_tokens.forEach((id, i) => this.pieces.set(id, hexOf(packed.pieces[i])));
    this.plan = { ...this.plan, ...packed.plan };
    const nodes = this.nodesOf(packed);
    const path = packed.accepted_path;
    const [draft_ms, verify_ms, other_ms] = packed.ms;
    const last = nodes[path.at(-1) ?? 0];
    const { bonus_token_id = last.target_choice, committed = path.length + 1, alternatives } = packed;
    return {
      index: packed.index,
      nodes,
      accepted_path: path,
      bonus_token_id,
      bonus_piece: this.pieces.get(bonus_token_id),
      committed_ids: [...path.map((i) => nodes[i].token_id), bonus_token_id].slice(0, committed),
      text: packed.text,
      draft_ms,
      verify_ms,
      other_ms,
      plan: this.plan,
      ...(alternatives ? { alternatives: alternatives.map(([rank, tokens]) =>
        [rank, tokens.map(([id, logprob]) => [id, this.pieces.get(id), logprob])]) } : {}),
    };
  }

  // One record for each node from one list for each field
  nodesOf({ nodes: { draft_percent, target_percent, ...columns }, evidence, also_proposed_by: also = {}, forbidden_by: forbidden = {} }) {
    const chance = (percent) => (percent === null ? null : percent / 100);
    const named = (proposer) => (typeof proposer === "number" ? this.proposers[proposer] : proposer);
    const nodes = [];
    columns.token_id.forEach((id, i) => {
      const node = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[i]]));
      nodes.push(Object.assign(node, {
        piece: this.pieces.get(id),
        depth: i ? nodes[node.parent].depth + 1 : 0,
        draft_prob: chance(draft_percent[i]),
        target_prob: chance(target_percent[i]),
        proposer: named(node.proposer),
        also_proposed_by: (also[i] || []).map(named),
        ...(forbidden[i] ? { forbidden_by: forbidden[i] } : {}), // as a trace, which names it only where there is one
        evidence: {},
        target_choice_piece: this.pieces.get(node.target_choice),
      }));
      for (const [name, rows] of Object.entries(evidence)) {
        const row = typeof rows[i] === "number" ? nodes[rows[i]].evidence[name] : rows[i];
        if (row) nodes[i].evidence[name] = row;
      }
    });
    return nodes;
  }
}
