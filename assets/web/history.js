// What the page knows: runs made of lanes, lanes made of a header and steps in the schema of a saved trace. Live
// updates, shipped recordings and opened files all end up here and look the same afterwards.
(() => {
  const { fromHex, fromText, toHex } = Jakiro;

  const DRAWN_FIRST = ["jakiro", "context", "autoregressive"];

  function pieceBytes(piece) {
    return Array.isArray(piece) ? fromHex(piece[0]) : fromText(piece);
  }

  // Digits as app/packing.py writes them: 91 printable characters, the backslash left out
  const digit = (code) => (code > 92 ? code - 36 : code - 35);

  // A column of `count` whole numbers, all written with the same number of digits
  function column(text, count) {
    const width = count ? text.length / count : 0;
    return Array.from({ length: count }, (_, i) => {
      let value = 0;
      for (let at = i * width; at < (i + 1) * width; at += 1) value = value * 91 + digit(text.charCodeAt(at));
      return value;
    });
  }

  const counted = (value, unit) => (value ? (value - 1) / unit : null);
  const signed = (value, unit) => (value ? ((value - 1) % 2 ? -value / 2 : (value - 1) / 2) / unit : null);

  // For each node its few numbers; null where it has none
  function rows([width, text], count, read) {
    const flat = column(text, width * count);
    return Array.from({ length: count }, (_, i) => {
      const row = flat.slice(i * width, (i + 1) * width).map(read).filter((value) => value !== null);
      return row.length ? row : null;
    });
  }

  // Columns back to one record per node; bytes stay hex, as in a trace file
  function unpackStep(packed) {
    const written = Array.isArray(packed.U) ? packed.U : packed.U.split("\x7f");
    const ids = column(packed.T, written.length);
    const pieces = written.map((piece, i) => ({ id: ids[i], piece: toHex(pieceBytes(piece)) }));
    const count = packed.N;
    const [tokens, choices, parents, passes, scores, drafts, targets, proposers, margins] = ["t", "c", "p", "d", "s", "q", "P",
      "o", "g"].map((name) => column(packed[name], count));
    const weights = rows(packed.w, count, (value) => counted(value, 1000));
    const contributions = rows(packed.e, count, (value) => signed(value, 10));
    const depths = [];
    const nodes = parents.map((above, i) => {
      const parent = above - 1;
      depths.push(parent < 0 ? 0 : depths[parent] + 1);
      return {
        token_id: pieces[tokens[i]].id,
        piece: pieces[tokens[i]].piece,
        parent,
        depth: depths[i],
        draft_pass: passes[i],
        score: -scores[i] / 1000 || 0,
        draft_prob: counted(drafts[i], 100000),
        target_prob: counted(targets[i], 100000),
        proposer: packed.O[proposers[i]],
        also_proposed_by: (packed.a && packed.a[i]) || [],
        router_weights: weights[i] || [],
        expert_contributions: contributions[i],
        residual_contribution: null,
        target_choice: pieces[choices[i]].id,
        target_choice_piece: pieces[choices[i]].piece,
        margin: (margins[i] / 1000) ** 2,
      };
    });
    const [levels, most, why, expectedTokens, expectedMs, curve, reread] = packed.plan;
    const added = [...packed.path.map((i) => nodes[i].token_id), pieces[packed.b].id];
    return {
      index: packed.i,
      nodes,
      accepted_path: packed.path,
      bonus_token_id: pieces[packed.b].id,
      bonus_piece: pieces[packed.b].piece,
      committed_ids: added.slice(0, packed.n),
      text: packed.x,
      draft_ms: packed.ms[0],
      verify_ms: packed.ms[1],
      other_ms: packed.ms[2],
      plan: { levels, nodes: most, why, expected_tokens: expectedTokens, expected_ms: expectedMs, curve, reread: Boolean(reread) },
    };
  }

  // Levels of a step's tree
  const depthOf = (step) => step.nodes.reduce((most, node) => Math.max(most, node.depth), 0);

  class Lane {
    constructor(header) {
      this.header = header;
      this.method = header.method;
      this.steps = [];
      this.endReason = null;
      this.tokens = [];
      this.seconds = []; // own clock at the end of each step
      this.deepest = 0; // levels of the deepest tree so far
      this.counts = []; // tokens in the answer after each step, the first one included
      this.addToken({ id: header.first_token_id, piece: header.first_piece, step: -1, level: 0, node: -1,
        proposer: "target" });
    }

    addToken(token) {
      const special = this.header.special_tokens[String(token.id)] || null;
      this.tokens.push({ ...token, bytes: fromHex(token.piece), special });
    }

    add(step) {
      if (step.index !== this.steps.length) return false;
      this.steps.push(step);
      const path = step.accepted_path;
      step.committed_ids.forEach((id, i) => {
        const node = i < path.length ? path[i] : -1;
        const from = node < 0 ? null : step.nodes[node];
        this.addToken({ id, piece: from ? from.piece : step.bonus_piece, step: step.index, level: i + 1, node,
          proposer: from ? from.proposer : "target" });
      });
      this.seconds.push((this.seconds[this.seconds.length - 1] || 0)
        + (step.draft_ms + step.verify_ms + step.other_ms) / 1000);
      this.counts.push(this.tokens.length);
      this.deepest = Math.max(this.deepest, depthOf(step));
      return true;
    }

    get clock() {
      return this.seconds.length ? this.seconds[this.seconds.length - 1] : 0;
    }

    // How many tokens had been written when this lane's own clock stood at `time`
    countAt(time) {
      return this.countAfter(this.stepsAt(time) - 1);
    }

    stepsAt(time) {
      let low = 0;
      let high = this.seconds.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.seconds[middle] <= time + 1e-9) low = middle + 1;
        else high = middle;
      }
      return low;
    }

    countAfter(step) {
      return step < 0 ? 1 : this.counts[Math.min(step, this.counts.length - 1)];
    }

    // Own seconds at which token number `count` (1 = the first) was there
    secondsTo(count) {
      if (count <= 1) return 0;
      const step = this.counts.findIndex((have) => have >= count);
      return step < 0 ? null : this.seconds[step];
    }
  }

  class Run {
    constructor(id, source) {
      this.id = id;
      this.source = source; // "live", "recording" or "opened"
      this.lanes = {};
      this.finished = false;
      this.waiting = null;
      this.title = null;
    }

    // The lane that the tree and the answer show
    get main() {
      for (const method of DRAWN_FIRST) if (this.lanes[method]) return this.lanes[method];
      return null;
    }

    get plain() {
      return this.lanes.autoregressive || null;
    }

    get question() {
      const header = this.main && this.main.header;
      if (!header) return "";
      const asked = header.messages.filter((message) => message.role === "user").pop();
      return asked ? asked.content : header.raw_prompt || "";
    }

    // One live event as app/handlers.py packs it
    take([kind, method, payload]) {
      if (kind === "wait") this.waiting = payload;
      else if (kind === "header") {
        this.waiting = null;
        if (!this.lanes[method]) this.lanes[method] = new Lane(payload);
      } else if (kind === "step") {
        if (this.lanes[method] && payload.i === this.lanes[method].steps.length) {
          this.lanes[method].add(unpackStep(payload));
        }
      } else if (kind === "end") {
        if (this.lanes[method]) this.lanes[method].endReason = payload;
      } else {
        this.finished = true;
        this.waiting = null;
      }
    }
  }

  function runFromTraces(id, source, traces, title) {
    const run = new Run(id, source);
    for (const [method, trace] of Object.entries(traces)) {
      const lane = new Lane(trace.header);
      trace.steps.forEach((step) => lane.add(step));
      lane.endReason = trace.end_reason || "stopped";
      run.lanes[method] = lane;
    }
    run.finished = true;
    run.title = title || null;
    return run;
  }

  function traceOf(lane) {
    return { header: lane.header, steps: lane.steps, end_reason: lane.endReason };
  }

  Object.assign(Jakiro, { Run, Lane, unpackStep, runFromTraces, traceOf, depthOf });
})();
