// The figure of the Watch tab: the three phases, the draft tree with its key, the result of the step, and the plot.

import { bold, h, radios, say } from "../base/dom.js";
import { change, moves, redrawNow, state } from "../page/machine.js";
import { Card } from "../tree/card.js";
import { showLarge } from "../tree/dialog.js";
import { TreeSize } from "../tree/size.js";
import { TreeView } from "../tree/tree.js";
import { Legend } from "./answer.js";
import { Scrubber } from "./scrubber.js";

// A button that switches `host` between plot and table
const tableToggle = (host) =>
  h(
    "button.toggle",
    {
      "data-toggle": "read_as_table",
      "aria-pressed": "false",
      onclick({ currentTarget }) {
        const on = !host.dataset.table;
        currentTarget.setAttribute("aria-pressed", String(on));
        host.dataset.table = on ? "1" : "";
        host.tabIndex = on ? 0 : -1; // a table may scroll inside its place
        redrawNow();
      },
    },
    say("read_as_table"),
  );

// A plot is drawn in `host`; its options appear while the pointer or the focus is in the pane
export function plotPane(host) {
  const mode = (name, key) =>
    h(
      "button.toggle",
      { "data-plot-mode": name, onclick: () => change({ plotMode: name }) },
      say(key),
    );
  return h(
    "section.pane.plot-pane",
    { "aria-label": say("speed") },
    h("h2.voice", say("speed")),
    h(
      "div.on-demand",
      mode("tokens", "plot_tokens"),
      mode("speed", "plot_speed"),
      tableToggle(host),
    ),
    host,
  );
}

// One phase of a step is its explanation, a control and a part of the progress bar
const phaseContent = (phase) => [
  h("span.num", String(phase)),
  h("span.phase-words", h("b", say(`phase_${phase}`)), h("small", say(`phase_${phase}_about`))),
  h("i.phase-bar"),
];

// Folded sections about the step on screen, each drawn only while it is open
function aboutStep(parts) {
  const section = (name) => {
    parts[name] = h("div", { class: `${name}-host`, tabindex: name === "mask" ? 0 : null });
    return h(
      "details",
      { class: `question-line panel-${name}`, ontoggle: () => redrawNow() },
      h("summary", say(`ask_${name}`)),
      parts[name],
    );
  };
  const close = h(
    "button.icon-button",
    {
      "aria-label": say("close"),
      popovertarget: "jk-about",
      popovertargetaction: "hide",
    },
    "×",
  );
  parts.panels = h(
    "section.panels.drawer",
    {
      id: "jk-about",
      popover: "auto",
      "aria-label": say("about_step"),
      ontoggle: () => redrawNow(),
    },
    h("div.pane-head", h("h2", say("about_step")), h("span.gap"), close),
    ["budget", "router", "mask", "numbers"].map(section),
  );
  return parts.panels;
}

export function treePane(parts) {
  parts.treeLine = h("p.tree-line.tabular");
  parts.phases = radios(
    "phase",
    say("phases"),
    [1, 2, 3].map((phase) => [phase, ...phaseContent(phase)]),
    moves.setPhase,
  );
  parts.treeHost = h("div.tree-host", { tabindex: 0 });
  parts.listHost = h("div.list-host", { tabindex: 0, hidden: true });
  parts.ladderHost = h("div.ladder-host", { hidden: true });
  parts.wholeTree = h(
    "button.plain-button.whole-tree",
    {
      onclick: () => showLarge(parts.wholeTree, state.run.main, state.index, state.phase),
    },
    say("whole_tree"),
  );
  const legend = h("div.legend");
  parts.legend = new Legend(legend);
  parts.key = h("span.tree-key");
  parts.treeSize = new TreeSize();
  parts.treeEmpty = h("p.muted.empty", say("no_steps"));
  const pane = h(
    "section.pane.tree-pane",
    { "aria-label": say("draft_tree") },
    h("h2.voice", say("draft_tree")),
    parts.phases.element,
    h("div.tree-room", parts.treeEmpty, parts.treeHost, parts.listHost, parts.ladderHost),
    h(
      "div.tree-foot.muted",
      legend,
      parts.key,
      h("span.gap"),
      parts.wholeTree,
      parts.treeSize.element,
      h(
        "button.link-button",
        { "data-action": "about", popovertarget: "jk-about" },
        say("about_step"),
      ),
    ),
    parts.treeLine,
    aboutStep(parts),
  );
  parts.card = new Card(pane);
  parts.tree = new TreeView(parts.treeHost, parts.card);
  parts.playBar = new Scrubber(h("div.scrubber"));
  return pane;
}

// The arithmetic of a step; before its check it has nothing of the result
export function drawSum(host, words) {
  if (host.dataset.words === words) return;
  host.dataset.words = words;
  host.replaceChildren(...bold(words));
}
