// Loads compressed code after the first paint: Plotly from the server, or from the page itself in a saved page.

import { addressOf, given, say } from "../base/dom.js";
import { notify } from "../base/server.js";

const PACKED_ID = "jakiro-plotly";
const waiting = new Set();
let bytes = null; // promise of the compressed library
let loading = null;
let failed = false;

// The bytes of one of the page's own compressed files
async function fetchPacked(file) {
  const answer = await fetch(addressOf(file));
  if (!answer.ok) throw new Error(`${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

function packed() {
  const here = document.getElementById(PACKED_ID);
  return (bytes ??= here
    ? Promise.resolve(Uint8Array.fromBase64(here.textContent))
    : fetchPacked(given.plotlyFile));
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
const later = window.requestIdleCallback || ((idle) => setTimeout(idle, 200));
const afterPaint = () =>
  new Promise((then) => requestAnimationFrame(() => later(then, { timeout: 2000 })));

async function load() {
  await afterPaint();
  try {
    await runPacked(packed());
  } catch {
    bytes = null;
  }
  failed = !window.Plotly;
  waiting.forEach((drawn) => drawn());
}

// Whether plots can be drawn; if not yet, `then` is called when it is known
function ready(then) {
  if (window.Plotly || failed) return !failed;
  waiting.add(then);
  loading ??= load();
  return false;
}

// The element that a saved page carries the library in; without a network there is none, and its plots are tables
async function asElement() {
  try {
    const text = (await packed()).toBase64();
    return `<script type="text/plain" id="${PACKED_ID}">${text}</scr` + "ipt>";
  } catch {
    notify("notice", say("plot_not_packed"));
    return "";
  }
}

export const plotly = { ready, failed: () => failed, asElement };

// The tab "Benchmark" loads its code after the first paint, because it is not visible at first
export async function loadBenchmark(element, ...rest) {
  await afterPaint();
  try {
    await runPacked(fetchPacked(given.benchmarkFile));
  } catch {
    element.querySelector(".jk-benchmark").textContent = say("bench_not_loaded");
    return;
  }
  given.mountBenchmark(element, ...rest);
}
