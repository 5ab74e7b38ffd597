// A lane's tree of the current step, small and without words; a click shows it large.
(() => {
  const { h, s, say, layoutTree, stateOf, marker } = Jakiro;

  const WIDTH = 132;
  const HEIGHT = 84;
  const MARGIN = 7;

  // An svg of a step's tree with its markers and what became of them
  function smallTree(lane, index) {
    const step = lane.steps[index];
    const plan = layoutTree(step);
    const column = (WIDTH - 2 * MARGIN) / Math.max(plan.depth + 1, 1);
    const row = (HEIGHT - 2 * MARGIN) / Math.max(plan.rows, 1);
    const place = (spot) => [MARGIN + spot.column * column, MARGIN + (spot.row + 0.5) * row];
    const svg = s("svg", { class: "tree small-tree phase-3", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
    const size = Math.max(4, Math.min(9, row));
    const marks = s("g");
    for (const [i, spot] of plan.places) {
      const node = step.nodes[i];
      const [x, y] = place(spot);
      const state = stateOf(step, i);
      if (i) {
        const [fromX, fromY] = place(plan.places.get(node.parent));
        svg.append(s("path", { class: `edge ${state}`, d: `M${fromX},${fromY}L${x},${y}` }));
      }
      const mark = marker(lane.proposers.of(node), size);
      mark.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      marks.append(s("g", { class: `node ${state}` }, mark));
    }
    svg.append(marks);
    return svg;
  }

  // The step's tree as the Watch tab draws it, in a dialog
  function showLarge(lane, index, phase = 3) {
    const { top, height } = Jakiro.onScreen();
    const host = h("div", { class: "tree-host", style: `height:${height * 0.6}px` });
    const close = h("button", { class: "plain-button", onclick: () => dialog.close() }, say("close"));
    const legend = lane.proposers.all.map((one) => h("span", { class: "small-legend" }, Jakiro.markerSample(one), one.label));
    const dialog = h("dialog", { class: "lane-tree-dialog", "aria-label": lane.title, style: `margin-top:${top + 0.1 * height}px`, onclose: () => dialog.remove() },
      h("div", { class: "pane-head" }, h("h2", null, lane.title), legend, h("span", { class: "gap" }), close), host);
    document.querySelector(".jk-view").append(dialog);
    dialog.showModal();
    const card = new Jakiro.Card(dialog);
    card.about(lane, index, phase);
    new Jakiro.TreeView(host, card).draw({ lane, index, phase, choices: false, showAll: false,
      sentence: Jakiro.stepSentence(lane, index, phase) });
  }

  // Keeps a lane's small tree up to date
  class SmallTree {
    constructor() {
      this.element = h("button", { class: "small-tree-button", hidden: true,
        onclick: () => showLarge(this.lane, this.index) });
    }

    draw(lane, index) {
      this.element.hidden = index < 0;
      if (index < 0 || (lane === this.lane && index === this.index)) return;
      Object.assign(this, { lane, index });
      this.element.setAttribute("aria-label", say("lane_tree", { step: index + 1, lane: lane.title }));
      this.element.replaceChildren(smallTree(lane, index));
    }
  }

  Object.assign(Jakiro, { SmallTree, showLarge });
})();
