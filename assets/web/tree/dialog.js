// The tree of a lane's step in a dialog, as the Watch tab draws it, with its legend.

import { h, say } from "../base/dom.js";
import { onScreen } from "../base/frame.js";
import { Card } from "./card.js";
import { markerSample } from "./marker.js";
import { TreeView } from "./tree.js";
import { stepSentence } from "../watch/words.js";

// `near`: the pressed element; the dialog opens next to it, on the screen
export function showLarge(near, lane, index, phase = 3) {
  const host = h("div.tree-host");
  const close = h("button.plain-button", { onclick: () => dialog.close() }, say("close"));
  const legend = lane.proposers.all.map((one) =>
    h("span.small-legend", markerSample(one), one.label),
  );
  const dialog = h(
    "dialog.lane-tree-dialog",
    { "aria-label": lane.title, onclose: () => dialog.remove() },
    h("div.pane-head", h("h2", lane.title), legend, h("span.gap"), close),
    host,
  );
  document.querySelector(".jk-view").append(dialog);
  const { top } = near.getBoundingClientRect();
  const screen = onScreen();
  dialog.style.top = `${screen.top}px`; // the focused element is scrolled into view
  dialog.showModal();
  dialog.style.top = `${Math.max(8, Math.min(top - screen.top, screen.height - dialog.offsetHeight - 8)) + screen.top}px`;
  const card = new Card(dialog);
  card.about(lane, index, phase);
  new TreeView(host, card).draw({
    lane,
    index,
    phase,
    showAll: true,
    whole: true,
    sentence: stepSentence(lane, index, phase),
  });
}
