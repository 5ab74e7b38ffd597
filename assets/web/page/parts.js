// Every pane of the view, built once and handed to the view, which only fills it.

import { h } from "../base/dom.js";
import { WaitingBox, chatPane } from "../chat/pane.js";
import { RecordingsView } from "../data/recordings.js";
import { keepDrawer, onKey } from "./keys.js";
import { pageMenu } from "./menu.js";
import { RaceView } from "../race/race.js";
import { plotPane, treePane } from "../watch/figure.js";
import { Plot } from "../watch/plot.js";

export function buildParts(root) {
  const parts = { root, waiting: [new WaitingBox(), new WaitingBox()] };
  parts.voice = h("div.voice", { role: "status", "aria-live": "polite" });
  const plotHost = h("div.plot-host");
  const racePlotHost = h("div.plot-host");
  parts.plot = new Plot(plotHost);
  parts.racePlot = new Plot(racePlotHost);
  parts.race = new RaceView(plotPane(racePlotHost), parts.waiting[1].element);
  parts.recordings = new RecordingsView();
  parts.keysHint = h("p.muted.keys-hint");
  const tree = treePane(parts);
  const chat = chatPane(parts);
  const scrubber = parts.playBar.host;
  const columns = h("div.columns.watch-only", chat, tree, scrubber, plotPane(plotHost));
  parts.placeScrubber = (tab) =>
    tab === "race" ? parts.race.more.before(scrubber) : tree.after(scrubber);
  parts.placeComposer = (tab) =>
    tab === "race"
      ? parts.race.element.prepend(parts.composer.element)
      : parts.answerScroll.parentElement.append(parts.composer.element);
  root.append(columns, parts.race.element, parts.keysHint, parts.recordings.element, parts.voice);
  const menu = pageMenu();
  (document.querySelector(".jk-header") || root).append(menu);
  parts.guess = menu.querySelector('[data-toggle="guess_first"]');
  root.tabIndex = -1;
  document.addEventListener("keydown", keepDrawer, true);
  document.addEventListener("keydown", (event) => onKey(event, parts));
  return parts;
}
