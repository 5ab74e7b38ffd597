// Shipped recordings and opened files: cards to play them, and the one that plays when the page opens.

import { Trouble, h, number, refuse, say } from "../base/dom.js";
import { notify, orRetry } from "../base/server.js";
import { runFromTraces } from "./history.js";
import { metrics } from "./metrics.js";
import { storedTrace } from "../chat/store.js";
import { readTraceFile } from "./trace_file.js";
import { redrawNow, screen, setTab, showRecording, state } from "../page/machine.js";
import { saveReplay } from "../page/save.js";
import { refuseLink } from "../share/address.js";
import { quoted } from "../share/link.js";
import { speedupWords } from "../watch/facts.js";
import { badgeOf } from "../watch/words.js";

const MOST_MEGABYTES = 20; // of a file

export class RecordingsView {
  constructor() {
    this.loaded = new Map();
    this.cards = h("div.recording-cards");
    const onchange = () => this.open(this.input.files[0]);
    const accept = ".json,application/json";
    this.input = h("input.file-input", { type: "file", accept, id: "jk-open", onchange });
    const label = h("label.plain-button", { for: "jk-open" }, say("open_trace"));
    const drop = h("div.drop", label, this.input, h("span.muted", say("drop_hint")));
    const hint = h("p.muted", say("recordings_hint"));
    this.element = h("div.recordings.recordings-only", hint, this.cards, drop);
  }

  async names() {
    return (this.known ??= screen.server ? await screen.server.recording_names() : []);
  }

  async load(name) {
    if (!this.loaded.has(name)) {
      const text = await screen.server.recording(name);
      this.loaded.set(name, text && { ...JSON.parse(text), text });
    }
    return this.loaded.get(name);
  }

  // Plays the first shipped recording, or the one that a link names, unless something else is already on screen
  first(link) {
    state.starting = true;
    return orRetry(() => this.playFirst(link)).finally(() => {
      state.starting = false;
      redrawNow();
    });
  }

  // Plays an answer that a link names; returns whether it is still kept, in this browser or on the server
  async playAnswer(id) {
    const traces = await storedTrace(id);
    const text = traces ? undefined : await screen.server.trace_text(id).catch(() => null);
    if (!traces && !text) {
      refuseLink(say("link_gone"));
      return false;
    }
    showRecording(`answer-${id}`, traces ? { traces } : { ...readTraceFile(text), text }, {
      playNow: true,
    });
    return true;
  }

  async playFirst(link) {
    if (link.answer && (await this.playAnswer(link.answer))) return;
    const names = await this.names();
    const known = !link.recording || names.includes(link.recording);
    if (!known) refuseLink(say("link_recording", { name: quoted(link.recording) }));
    const name = known && link.recording ? link.recording : names[0];
    if (!name) return;
    const recording = await this.load(name);
    if (!recording || state.run) return;
    const { length } = runFromTraces(name, "recording", recording.traces).main.steps;
    const beyond = known && link.step >= length;
    if (beyond) refuseLink(say("link_step_beyond", { step: link.step + 1, steps: length }));
    const step = known && !beyond ? link.step : undefined;
    showRecording(`recording-${name}`, recording, { playNow: step === undefined, step });
  }

  async open(file) {
    if (!file) return;
    try {
      const size = Math.ceil(file.size / 1024 / 1024);
      if (size > MOST_MEGABYTES) refuse("file_too_large", { size });
      const text = await file.text();
      const recording = readTraceFile(text);
      const title = recording.title || file.name;
      notify(null);
      const id = `opened-${file.name}-${file.lastModified}`;
      this.play(id, { ...recording, title, text }, "opened");
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      notify("error", error.message);
    } finally {
      this.input.value = "";
    }
  }

  play(id, recording, source = "recording") {
    setTab("watch", true);
    showRecording(id, recording, { playNow: source === "recording", source });
  }

  card(id, recording) {
    const run = runFromTraces(id, "recording", recording.traces, recording.title);
    const times = speedupWords(metrics.speedup(run.main, run.plain));
    const tau = metrics.tau(run.main.steps);
    const playIt = { onclick: () => this.play(id, recording) };
    const save = { "data-action": "handout", onclick: () => saveReplay(run, recording.text) };
    return h(
      "section.pane.recording-card",
      h("h2", { dir: "auto" }, recording.title),
      h(
        "p.tabular",
        times && [h("b", times), ` ${say("fact_speedup")} · `],
        tau && `${number(tau, 1)} ${say("fact_tau")}`,
      ),
      h("p", { dir: "auto" }, recording.why || run.question),
      h("p.muted", badgeOf(run)),
      h(
        "div.recording-actions",
        h("button.plain-button.primary", playIt, say("play")),
        h("button.plain-button", save, say("save_handout")),
      ),
    );
  }

  draw() {
    return orRetry(async () => {
      const names = await this.names();
      const shipped = await Promise.all(names.map((name) => this.load(name)));
      const cards = shipped.flatMap((recording, i) =>
        recording ? [this.card(`recording-${names[i]}`, recording)] : [],
      );
      const none = h("p.muted", say("recordings_none"));
      this.cards.replaceChildren(...(names.length ? cards : [none]));
    });
  }
}
