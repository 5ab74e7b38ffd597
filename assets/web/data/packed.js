// Live steps as app/packing.py writes them: columns of digits, and tables of strings that grow with the answer.
(() => {
  const { fromText, toHex } = Jakiro;

  const PROBABILITY_UNIT = 100000;
  const SEPARATOR = "\x7f";

  // 91 printable characters from # on, the backslash left out
  const digit = (code) => (code > 92 ? code - 36 : code - 35);
  const counted = (value, unit) => (value ? (value - 1) / unit : null);
  const signed = (value, unit) => (value ? ((value - 1) % 2 ? -value / 2 : (value - 1) / 2) / unit : null);
  const chance = (value) => counted(value, PROBABILITY_UNIT);
  const hexOf = (piece) => (Array.isArray(piece) ? piece[0] : toHex(fromText(piece)));

  // Columns one after the other, each behind the number of digits of its numbers
  class Columns {
    constructor(text) {
      this.text = text;
      this.at = 0;
    }

    next(count) {
      const width = digit(this.text.charCodeAt(this.at));
      let at = this.at + 1;
      this.at = at + width * count;
      return Array.from({ length: count }, () => {
        let value = 0;
        for (const end = at + width; at < end; at += 1) value = value * 91 + digit(this.text.charCodeAt(at));
        return value;
      });
    }

    // `count` rows of a few numbers, without those that are not there
    rows(count, width, read) {
      const flat = this.next(count * width);
      return Array.from({ length: count }, (_, i) => flat.slice(i * width, (i + 1) * width).map(read)
        .filter((value) => value !== null));
    }
  }

  // Reads the steps of one lane in order, back to the schema of a trace; bytes stay hex, as in a trace file
  class StepReader {
    constructor() {
      this.tokens = [];
      this.names = [];
    }

    // The step, or null where it is not the one with the wanted index
    read([digits, pieces, names, text], wanted) {
      const columns = new Columns(digits);
      const [count, committed, levels, most, reread, depth, points, also, rows, rowWidth, contributionWidth, fresh] = columns.next(12);
      const [index, bonus, why] = columns.next(3);
      if (index !== wanted) return null;
      const [draft, verify, other, expectedTokens, expectedMs] = columns.next(5);
      const [tokens, choices, parents, passes, scores, drafts, targets, margins, proposers, weights] = Array.from({ length: 10 },
        () => columns.next(count));
      const weightRows = columns.rows(rows, rowWidth, (value) => counted(value, 1000));
      const contributions = columns.rows(count, contributionWidth, (value) => signed(value, 10));
      const path = columns.next(depth);
      const pairs = columns.rows(also, 2, (value) => value);
      const curveNodes = columns.next(points);
      const curveSpeeds = columns.next(points);
      this.names.push(...names);
      this.learn(columns.next(fresh), pieces);
      const depths = [];
      const nodes = parents.map((above, i) => {
        depths.push(above ? depths[above - 1] + 1 : 0);
        return {
          ...this.tokens[tokens[i]],
          parent: above - 1,
          depth: depths[i],
          draft_pass: passes[i],
          score: -scores[i] / 1000 || 0,
          draft_prob: chance(drafts[i]),
          target_prob: chance(targets[i]),
          proposer: this.names[proposers[i]],
          also_proposed_by: pairs.filter(([node]) => node === i).map(([, name]) => this.names[name]),
          router_weights: weightRows[weights[i]],
          expert_contributions: contributions[i].length ? contributions[i] : null,
          residual_contribution: null,
          target_choice: this.tokens[choices[i]].token_id,
          target_choice_piece: this.tokens[choices[i]].piece,
          margin: (margins[i] / 1000) ** 2,
        };
      });
      const last = this.tokens[bonus];
      return {
        index,
        nodes,
        accepted_path: path,
        bonus_token_id: last.token_id,
        bonus_piece: last.piece,
        committed_ids: [...path.map((i) => nodes[i].token_id), last.token_id].slice(0, committed),
        text,
        draft_ms: counted(draft, 1000),
        verify_ms: counted(verify, 1000),
        other_ms: counted(other, 1000),
        plan: { levels, nodes: most, why: this.names[why], expected_tokens: counted(expectedTokens, 100),
          expected_ms: counted(expectedMs, 100), curve: curveNodes.map((node, i) => [node, curveSpeeds[i] / 100]),
          reread: Boolean(reread) },
      };
    }

    learn(ids, pieces) {
      const written = Array.isArray(pieces) ? pieces : pieces.split(SEPARATOR);
      ids.forEach((id, i) => this.tokens.push({ token_id: id, piece: hexOf(written[i]) }));
    }
  }

  Object.assign(Jakiro, { StepReader });
})();
