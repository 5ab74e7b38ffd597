// Steps as app/serving/packing.py writes them, read back into the schema of a saved trace, where bytes are hex.

import { fromText, toHex } from "../base/pieces.js";

const hexOf = (piece) => (Array.isArray(piece) ? piece[0] : toHex(fromText(piece)));
const chance = (percent) => (percent === null ? null : percent / 100);

// Reads the steps of one lane in order; each has only values that earlier ones did not define
export class StepReader {
  constructor(header) {
    this.proposers = header.proposers.map((proposer) => proposer.id);
    this.pieces = new Map();
    this.plan = {};
  }

  read(packed) {
    packed.new_tokens.forEach((id, i) => this.pieces.set(id, hexOf(packed.pieces[i])));
    this.plan = { ...this.plan, ...packed.plan };
    const nodes = this.nodesOf(packed);
    const { index, text, accepted_path, ms, alternatives } = packed;
    const [draft_ms, verify_ms, other_ms] = ms;
    const bonusOfPath = nodes[accepted_path.at(-1) ?? 0].target_choice;
    const { bonus_token_id = bonusOfPath, committed = accepted_path.length + 1 } = packed;
    const ids = [...accepted_path.map((i) => nodes[i].token_id), bonus_token_id];
    const withPiece = ([id, logprob]) => [id, this.pieces.get(id), logprob];
    const ranked = alternatives?.map(([rank, tokens]) => [rank, tokens.map(withPiece)]);
    return {
      index,
      nodes,
      accepted_path,
      bonus_token_id,
      bonus_piece: bonus_token_id === null ? "" : this.pieces.get(bonus_token_id),
      committed_ids: ids.slice(0, committed),
      text,
      draft_ms,
      verify_ms,
      other_ms,
      plan: this.plan,
      ...(ranked && { alternatives: ranked }),
    };
  }

  // One record for each node from one list for each field
  nodesOf({
    nodes: { draft_percent, target_percent, ...columns },
    evidence,
    also_proposed_by: also = {},
    forbidden_by: forbidden = {},
  }) {
    const named = (proposer) =>
      typeof proposer === "number" ? this.proposers[proposer] : proposer;
    const nodes = [];
    columns.token_id.forEach((id, i) => {
      const node = {
        piece: this.pieces.get(id),
        draft_prob: chance(draft_percent[i]),
        target_prob: chance(target_percent[i]),
        also_proposed_by: (also[i] || []).map(named),
        evidence: {},
      };
      for (const [name, column] of Object.entries(columns)) node[name] = column[i];
      node.proposer = named(node.proposer);
      node.depth = i ? nodes[node.parent].depth + 1 : 0;
      node.target_choice_piece = this.pieces.get(node.target_choice);
      if (forbidden[i]) node.forbidden_by = forbidden[i];
      for (const [name, rows] of Object.entries(evidence)) {
        const row = typeof rows[i] === "number" ? nodes[rows[i]].evidence[name] : rows[i];
        if (row) node.evidence[name] = row;
      }
      nodes.push(node);
    });
    return nodes;
  }
}
