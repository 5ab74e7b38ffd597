// A saved page: a recording with the tabs it has something to show in.

import { readTraceFile } from "../data/trace_file.js";
import { showRecording } from "./machine.js";
import { mountReplayTop } from "./top.js";
import { mountView } from "./view.js";

export function openReplay() {
  const text = document.getElementById("jakiro-recording").textContent;
  const found = readTraceFile(text);
  const room = document.getElementById("replay");
  document.body.classList.add("replay");
  mountReplayTop(room, Object.keys(found.traces).length > 1 ? ["watch", "race"] : ["watch"]);
  mountView(room, {}, null, null);
  showRecording("replay", { ...found, text }, { playNow: false });
}
