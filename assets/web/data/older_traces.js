// Traces of schema 1 in the schema of today, as jakiro/older_traces.py turns them; the only place that knows its names.
(() => {
  const METHODS = { context: "prompt_lookup" };
  const PROPOSERS = { context: "copied" };
  const EXPERT = "expert_";
  const EVIDENCE = ["router_weights", "expert_contributions", "residual_contribution"];
  const has = (names, name) => Object.hasOwn(names, name);
  const renamed = (names, name) => (has(names, name) ? names[name] : name);

  function nodeOf({ router_weights, expert_contributions, residual_contribution, ...node }) {
    const told = { router_weights, expert_contributions,
      residual_contribution: residual_contribution === null ? null : [residual_contribution] };
    const evidence = Object.fromEntries(EVIDENCE.map((name) => [name, told[name]]).filter(([, row]) => row && row.length));
    return { ...node, proposer: renamed(PROPOSERS, node.proposer),
      also_proposed_by: node.also_proposed_by.map((name) => renamed(PROPOSERS, name)), evidence };
  }

  function proposerNamed(id) {
    const known = Jakiro.methods.flatMap((method) => method.proposers).find((proposer) => proposer.id === id);
    if (known && !id.startsWith(EXPERT)) return known;
    return { id, label: id.startsWith(EXPERT) ? `Expert ${Number(id.slice(EXPERT.length)) + 1}` : id,
      sentence: "The expert that pushed the candidate most, or whose own guess it was." };
  }

  // Everybody who proposed a node: the experts of the head in their order, then the others
  function proposersOf(steps) {
    const nodes = steps.flatMap((step) => step.nodes.slice(1));
    const named = new Set(nodes.flatMap((node) => [node.proposer, ...node.also_proposed_by]));
    const count = nodes.reduce((most, node) => Math.max(most, (node.evidence.router_weights || []).length), 0);
    const experts = Array.from({ length: count }, (_, e) => `${EXPERT}${e}`);
    return [...experts, ...[...named].filter((name) => !experts.includes(name)).sort()].map(proposerNamed);
  }

  // A header of schema 1; `steps` have nodes of today
  function headerOf({ head, ...header }, steps) {
    const { method } = header;
    const copies = header.tree.context && !has(METHODS, method);
    return { ...header, schema_version: 2, method: copies ? `${method}+${METHODS.context}` : renamed(METHODS, method),
      drafter: head, proposers: proposersOf(steps) };
  }

  // The trace itself where it is of today
  function upgraded(trace) {
    if (trace.header.schema_version !== 1) return trace;
    const steps = trace.steps.map((step) => ({ ...step, nodes: step.nodes.map(nodeOf) }));
    return { ...trace, header: headerOf(trace.header, steps), steps };
  }

  Object.assign(Jakiro, { upgraded });
})();
