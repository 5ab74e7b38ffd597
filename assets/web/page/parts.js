// Every pane of the view, built once and handed to the view, which only fills it.
(() => {
  const { h, say, counted, nameOf, milliseconds, depthOf, deliveredPath, bonusDelivered } = Jakiro;

  // Dims all but one proposer. A lane may have any number of them, so the rule is written when it is needed
  const ALL_BUT = ".jk-view :is(.answer-text .token, .tree .node:not(.root)):not(.by-PLACE):not(:has(.by-PLACE)) { opacity: 0.25; }";

  const HEAD_PIXELS = 40; // of a panel, which say nothing of a step

  const toggle = (key, pressed, action) => h("button", { class: "toggle", "data-toggle": key, "aria-pressed": String(pressed),
    onclick: (event) => {
      const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
      event.currentTarget.setAttribute("aria-pressed", String(on));
      action(on);
    } }, say(key));

  // Shows what is drawn in `host` as a table instead
  const tableToggle = (host, redraw) => toggle("read_as_table", false, (on) => {
    host.dataset.table = on ? "1" : "";
    host.tabIndex = on ? 0 : -1; // a table may scroll inside its place
    redraw();
  });

  // What a question waits for, with a way out of the queue
  class WaitingBox {
    constructor() {
      this.words = h("span");
      this.element = h("div", { class: "waiting", role: "status", hidden: true }, this.words, h("span", { class: "gap" }),
        h("button", { class: "plain-button", "data-action": "leave", onclick: () => document.querySelector("#stop").click() },
          say("leave_queue")));
    }

    draw(run) {
      this.element.hidden = !run || !run.waiting;
      if (run && this.words.textContent !== run.waiting) this.words.textContent = run.waiting;
    }
  }

  function answerPane(parts, state, on) {
    parts.question = h("p", { class: "asked", dir: "auto" });
    parts.sentWith = h("p", { class: "sent-with muted" });
    parts.earlier = h("div", { class: "earlier", hidden: true });
    parts.empty = h("p", { class: "muted empty" }, say("empty_answer"));
    parts.answerText = h("div", { class: "answer-host" });
    parts.markdown = h("div", { class: "markdown-host", hidden: true });
    parts.answerScroll = h("div", { class: "answer-scroll", id: "jk-answer", tabindex: 0 }, parts.earlier, parts.question, parts.sentWith, parts.empty,
      parts.answerText, parts.markdown);
    parts.tokenLine = h("div", { class: "token-line muted" });
    const legend = h("div", { class: "legend" });
    parts.badge = h("span", { class: "badge", hidden: true });
    const pane = h("section", { class: "pane answer-pane", "aria-label": say("answer") },
      h("div", { class: "pane-head" }, h("h2", null, say("answer")), parts.badge, h("span", { class: "gap" }),
        toggle("show_spaces", false, (shown) => pane.classList.toggle("spaces", shown)),
        toggle("markdown_view", false, (shown) => {
          state.markdown = shown;
          on.redraw("text");
        })),
      parts.waiting[0].element, parts.answerScroll, parts.tokenLine, legend);
    parts.answer = new Jakiro.AnswerView(parts.answerText, {
      onPick: on.seek,
      onPreview: (token) => {
        parts.tokenLine.textContent = token && parts.answer.lane ? Jakiro.tokenLine(parts.answer.lane, token) : "";
      },
    });
    const dimmed = new CSSStyleSheet();
    document.adoptedStyleSheets.push(dimmed);
    parts.legend = new Jakiro.Legend(legend, (place) => {
      dimmed.replaceSync(place === null ? "" : ALL_BUT.replaceAll("PLACE", String(place)));
      on.redraw("text");
    });
    return pane;
  }

  // `plot` is drawn in `host`; its tools stand in the pane's head
  function plotPane(state, on, host, plot) {
    const mode = (name, key) => h("button", { class: "toggle", "data-plot-mode": name, onclick: () => {
      state.plotMode = name;
      on.redrawNow("plot");
    } }, say(key));
    return h("section", { class: "pane plot-pane", "aria-label": say("speed") },
      h("div", { class: "pane-head" }, h("h2", null, say("speed")), h("span", { class: "gap" }), mode("tokens", "plot_tokens"),
        mode("speed", "plot_speed"), tableToggle(host, () => on.redrawNow("plot")), plot.figure.tools), host);
  }

  function treePane(parts, state, on) {
    parts.treeLine = h("span", { class: "tree-line muted tabular" });
    parts.phases = [1, 2, 3].map((phase) => h("button", { class: "phase", "data-phase": phase, onclick: () => on.setPhase(phase) },
      say(`phase_${phase}`)));
    parts.guess = h("button", { class: "toggle", id: "jk-guess", onclick: () => (state.guess && state.phase < 3
      ? on.setPhase(3) : on.guessFirst(!state.guess)) });
    parts.treeHost = h("div", { class: "tree-host", tabindex: 0 });
    parts.listHost = h("div", { class: "list-host", hidden: true });
    parts.treeEmpty = h("p", { class: "muted empty" }, say("empty_tree"));
    const set = (name) => (value) => {
      state[name] = value;
      on.redraw("tree");
    };
    const pace = () => h("div", { class: "segmented", role: "group" }, [["readable", false], ["every_step", true]].map(
      ([key, every]) => h("button", { class: "phase", "data-pace": key, "aria-pressed": String(state.everyStep === every),
        onclick: (event) => {
          state.everyStep = every;
          event.currentTarget.parentNode.childNodes.forEach((button) => button.setAttribute("aria-pressed",
            String(button === event.currentTarget)));
        } }, say(key))));
    parts.smallTrees = h("p", { class: "muted small small-trees", hidden: true }, say("small_trees"), " ",
      h("button", { class: "link-button", "data-action": "big_tree", onclick: () => Jakiro.bigTree(state) }, say("big_tree")));
    parts.captions = h("ol", { class: "captions", hidden: true }, [1, 2, 3].map((phase) => h("li", null, say(`caption_${phase}`))));
    const pane = h("section", { class: "pane tree-pane", "aria-label": say("draft_tree") },
      h("div", { class: "pane-head" }, h("h2", null, say("draft_tree")), parts.treeLine, h("span", { class: "gap" }),
        h("div", { class: "segmented", role: "group" }, parts.phases), parts.guess),
      parts.captions, h("div", { class: "tree-room" }, h("span", { class: "order-hint" }, say("order_hint")), parts.treeEmpty, parts.treeHost,
        parts.listHost),
      parts.smallTrees,
      h("div", { class: "tree-options" }, toggle("choices", false, set("choices")), toggle("show_all", false, set("showAll")),
        toggle("read_as_list", false, set("list")),
        h("span", { class: "gap" }), h("span", { class: "muted small signs" }, say("signs")), pace()));
    parts.card = new Jakiro.Card(pane);
    parts.tree = new Jakiro.TreeView(parts.treeHost, parts.card);
    return pane;
  }

  function panels(parts, on) {
    const panel = (name, host, extra) => h("section", { class: `pane panel-${name}` },
      h("div", { class: "pane-head" }, h("h2", null, say(name)), h("span", { class: "gap" }), extra), host);
    const mask = h("div", { class: "mask-host" });
    parts.router = h("div", { class: "router-host" });
    parts.budget = h("div", { class: "budget-host" });
    parts.mask = new Jakiro.MaskPanel(mask, (row) => {
      const { tree } = parts;
      if (tree.step) tree.light(row === null ? [] : [0, ...Jakiro.pathTo(tree.step.nodes, row)]);
    });
    parts.treeHost.addEventListener("pointerover", (event) => {
      const node = event.target.closest("[data-node]");
      parts.mask.mark(node && node.dataset.node !== "bonus" ? Number(node.dataset.node) : null);
    });
    parts.panels = h("div", { class: "panels", hidden: true }, panel("mask", mask, tableToggle(mask, () => on.redraw("tree"))),
      panel("router", parts.router),
      panel("budget", parts.budget));
    parts.panelsSeen = false;
    Jakiro.watchSeen(parts.panels, (seen) => {
      parts.panelsSeen = seen;
      if (seen) on.redrawNow("tree");
    }, HEAD_PIXELS);
    return parts.panels;
  }

  function buildParts(root, state, on) {
    const parts = { root, waiting: [new WaitingBox(), new WaitingBox()] };
    const strip = h("div", { class: "strip", role: "group" });
    const scrubber = h("div", { class: "scrubber" });
    parts.strip = new Jakiro.Strip(strip, (step) => {
      on.setTab("watch");
      on.seek(step);
    });
    parts.scrubber = new Jakiro.Scrubber(scrubber, { seek: on.seek, follow: on.follow, play: () => on.play(),
      pace: (value) => (state.pace = value) });
    parts.voice = h("div", { class: "voice", role: "status", "aria-live": "polite" });
    parts.turns = h("div", { class: "turns" });
    const plotHost = h("div", { class: "plot-host" });
    const racePlotHost = h("div", { class: "plot-host" });
    parts.plot = new Jakiro.Plot(plotHost, on);
    parts.racePlot = new Jakiro.Plot(racePlotHost, on);
    parts.race = new Jakiro.RaceView(plotPane(state, on, racePlotHost, parts.racePlot), parts.waiting[1].element, on);
    parts.recordings = new Jakiro.RecordingsView(state, on);
    parts.turnActions = { askAgain: on.askAgain, edit: on.edit, show: on.show };
    parts.keysHint = h("span", { class: "muted keys-hint" });
    const tree = treePane(parts, state, on);
    const columns = h("div", { class: "columns watch-only" },
      h("div", { class: "left" }, answerPane(parts, state, on), plotPane(state, on, plotHost, parts.plot)), scrubber, tree);
    // Keys reach the scrubber after the answer or the lanes, and before the tree
    parts.placeScrubber = (tab) => (tab === "race" ? parts.race.element.after(scrubber) : tree.before(scrubber));
    root.append(
      strip,
      columns,
      parts.race.element,
      h("div", { class: "under" }, parts.keysHint, h("span", { class: "gap" }),
        on.server ? Jakiro.copyButton(() => Jakiro.linkTo(state)) : null,
        Jakiro.saveMenu(state, on.server)),
      panels(parts, on),
      parts.turns,
      parts.recordings.element,
      parts.voice);
    root.tabIndex = -1;
    document.addEventListener("keydown", (event) => Jakiro.onKey(event, parts, state));
    return parts;
  }

  function textOf(lane, count, start = 0) {
    return Jakiro.unitsOf(lane.tokens.slice(start, count)).map((unit) => (unit.state === "open" && !lane.endReason ? "" : unit.text)).join("");
  }

  // The step in one sentence, for screen readers and as the picture's name
  function stepSentence(lane, index, phase) {
    const step = lane.steps[index];
    const values = { step: index + 1, steps: lane.steps.length, candidates: counted("candidate", step.nodes.length - 1),
      levels: counted("level", depthOf(step)) };
    if (phase === 1) return say("tree_sentence_hidden", values);
    const named = (path) => path.map((i) => `“${nameOf(lane, step.nodes[i].token_id, step.nodes[i].piece)}”`).join(", ");
    const tokens = named(deliveredPath(step));
    const bonus = `“${nameOf(lane, step.bonus_token_id, step.bonus_piece)}”`;
    const cut = [named(step.accepted_path.slice(step.committed_ids.length)), bonus].filter(Boolean).join(", ");
    return say(bonusDelivered(step) ? "tree_sentence" : "tree_sentence_cut", { ...values, draft: milliseconds(step.draft_ms), verify: milliseconds(step.verify_ms),
      accepted: tokens ? say("accepted_list", { tokens }) : say("accepted_none"),
      bonus, cut });
  }

  function badgeOf(run) {
    if (!run || run.source === "live" || !run.main) return "";
    const { header } = run.main;
    const profile = header.device_profile || {};
    const device = profile.device || profile.name || header.device;
    return say(run.source === "opened" ? "opened_badge" : "recording_badge", { device, date: String(header.created).slice(0, 10) });
  }

  Object.assign(Jakiro, { buildParts, textOf, stepSentence, badgeOf });
})();
