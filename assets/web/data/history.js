// What the page knows: runs made of lanes, lanes made of a header and steps in the schema of a saved trace. Live
// updates, shipped recordings and opened files all end up here and look the same afterwards.
(() => {
  const { fromHex, StepReader } = Jakiro;

  const DRAWN_FIRST = ["jakiro", "context", "autoregressive"];

  // Levels of a step's tree
  const depthOf = (step) => step.nodes.reduce((most, node) => Math.max(most, node.depth), 0);

  class Lane {
    constructor(header) {
      this.header = header;
      this.method = header.method;
      this.steps = [];
      this.reader = new StepReader();
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

    // One live event as app/packing.py packs it
    take([kind, method, payload]) {
      if (kind === "wait") this.waiting = payload;
      else if (kind === "header") {
        this.waiting = null;
        if (!this.lanes[method]) this.lanes[method] = new Lane(payload);
      } else if (kind === "step") {
        const lane = this.lanes[method];
        const step = lane && lane.reader.read(payload, lane.steps.length);
        if (step) lane.add(step);
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

  Object.assign(Jakiro, { Run, Lane, runFromTraces, traceOf, depthOf });
})();
