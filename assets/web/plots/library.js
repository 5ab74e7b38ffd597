// Brings code after the page's first paint: Plotly from the server, or in a saved page from the page itself. Compressed in
// both, so that one way unpacks it and a saved page carries it as it came.

import { addressOf, given, say } from "../base/dom.js";
import { notify } from "../base/server.js";

const PACKED_ID = "jakiro-plotly";
const waiting = [];
let bytes = null; // promise of the compressed library
let state = "none"; // then "loading", "ready" or "failed"

// The bytes of one of the page's own compressed files
async function fetchPacked(file) {
  const answer = await fetch(addressOf(file));
  if (!answer.ok) throw new Error(`${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

function packed() {
  const here = document.getElementById(PACKED_ID);
  return (bytes ??= here ? Promise.resolve(Uint8Array.fromBase64(here.textContent)) : fetchPacked(given.plotlyFile));
}

// Runs the script that compressed bytes hold
async function runPacked(given) {
  const stream = new Blob([await given]).stream().pipeThrough(new DecompressionStream("gzip"));
  const code = document.createElement("script");
  code.textContent = await new Response(stream).text();
  document.head.append(code);
  code.remove();
}

// Once anything is on screen, at a quiet moment
function afterPaint(work) {
  const later = window.requestIdleCallback || ((idle) => setTimeout(idle, 200));
  requestAnimationFrame(() => later(work, { timeout: 2000 }));
}

function load() {
  if (state !== "none") return;
  state = "loading";
  afterPaint(async () => {
    try {
      await runPacked(packed());
      state = window.Plotly ? "ready" : "failed";
    } catch {
      state = "failed";
    }
    if (state === "failed") bytes = null;
    waiting.splice(0).forEach((drawn) => drawn());
  });
}

// Whether plots can be drawn; if not yet, `then` is called when it is known
function ready(then) {
  if (state === "none" || state === "loading") {
    if (!waiting.includes(then)) waiting.push(then);
    load();
  }
  return state === "ready";
}

// The element that a saved page carries the library in; without a network there is none, and its plots are tables
async function asElement() {
  try {
    return `<script type="text/plain" id="${PACKED_ID}">${(await packed()).toBase64()}</scr` + "ipt>";
  } catch {
    notify("notice", say("plot_not_packed"));
    return "";
  }
}

export const plotly = { ready, failed: () => state === "failed", asElement };

// The tab "Benchmark" before its code is there: what nobody sees at first comes after the first paint
export function loadBenchmark(element, ...rest) {
  afterPaint(async () => {
    try {
      await runPacked(fetchPacked(given.benchmarkFile));
    } catch {
      element.querySelector(".jk-benchmark").textContent = say("bench_not_loaded");
      return;
    }
    given.mountBenchmark(element, ...rest);
  });
}
