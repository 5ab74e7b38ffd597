// Saving: the trace as json, one row per candidate as csv, a replay page that works from disk, and the tree as svg. Files are
// made from the trace itself, at full precision, never from the digits that were sent for drawing.

import { given, h, say } from "../base/dom.js";
import { notify } from "../base/server.js";
import { cut } from "../base/pieces.js";
import { nameOf, runFromTraces, tracesOf } from "../data/history.js";
import { readTraceFile } from "../data/trace_file.js";
import { screen, state } from "./machine.js";
import { plotly } from "../plots/library.js";
import { speedPicture } from "../plots/speed.js";
import { stateOf } from "../tree/layout.js";

const MOST_NAME = 60;

export function download(name, content, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The first three words of a text, as part of a file's name
export function plainName(text) {
  const words = text
    .slice(0, 1000)
    .toLowerCase()
    .match(/[\p{L}\p{N}]+/gu) || ["answer"];
  return Array.from(words.slice(0, 3).join("-")).slice(0, MOST_NAME).join("");
}

// jakiro-<first three words>-seed7-<date>
export function fileName(run, ending) {
  const { header } = run.main;
  const date = String(header.created).slice(0, 10);
  return `jakiro-${plainName(run.question)}-seed${header.sampling.seed}-${date}.${ending}`;
}

// A run as JSON: its original file, else the server's own trace; if the server no longer keeps it, the page's data and a notice
export async function asJson(run) {
  const loaded = run.branches.filter((branch) => branch.main);
  if (run.text || loaded.length < 2) return run.text || oneAsJson(run);
  const [text, ...branches] = await Promise.all([run, ...loaded].map(oneAsJson));
  return `${text.slice(0, -1)},"branches":[${branches}],"shown":${loaded.indexOf(run)}}`;
}

async function oneAsJson(run) {
  const text = await screen.server?.trace_text(run.id).catch(() => null);
  if (text) return text;
  notify("notice", say("save_rounded"));
  return JSON.stringify({ title: run.title || run.question, why: "", traces: tracesOf(run) });
}

// Quoted where needed; a cell that a table program would take for a formula starts with an apostrophe
function cell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  if (typeof value === "string" && /^(\s*[=+\-@]|[\t\r])/.test(text)) text = `'${text}`;
  return /[",;\t\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

const COLUMNS = [
  "method",
  "step",
  "node",
  "parent",
  "depth",
  "pass",
  "token_id",
  "token",
  "proposer",
  "score",
  "draft_prob",
  "target_prob",
  "state",
  "target_choice",
  "place",
  "rank",
];

// Spreadsheets read UTF-8 only behind a byte order mark
export const csvOf = (rows) => "\uFEFF" + rows.map((row) => row.map(cell).join(",")).join("\r\n");

export function asCsv(run) {
  const rows = [COLUMNS];
  for (const lane of Object.values(run.lanes)) {
    for (const step of lane.steps) {
      step.nodes.forEach(
        (node, i) =>
          i &&
          rows.push([
            lane.method,
            step.index,
            i,
            node.parent,
            node.depth,
            node.draft_pass,
            node.token_id,
            nameOf(lane, node.token_id, node.piece),
            node.proposer,
            node.score,
            node.draft_prob,
            node.target_prob,
            stateOf(step, i),
            node.target_choice,
            null,
            null,
          ]),
      );
    }
    lane.tokens.forEach(({ id: came, step }, place) => {
      const { tokens = [] } = lane.alternativesAt(place) || {};
      tokens
        .slice(1)
        .forEach(([id, piece, logprob], i) =>
          rows.push([
            lane.method,
            step < 0 ? null : step,
            ...Array(4).fill(null),
            id,
            nameOf(lane, id, piece),
            null,
            null,
            null,
            logprob === null ? 0 : Math.exp(logprob),
            id === came ? "came" : "alternative",
            null,
            place,
            i + 1,
          ]),
        );
    });
  }
  return csvOf(rows);
}

// The page's own style and scripts with the recording inside: one file, no network
export async function asReplay(json, title) {
  const values = {
    title: h("title", `${cut(title, 80)} · ${say("title")}`).outerHTML,
    style: document.getElementById("jakiro-style").textContent,
    look: document.body.classList.contains("dark") ? "dark" : "",
    recording: json
      .replace(/</g, "\\u003c")
      .replace(/\u2028|\u2029/g, (sign) => `\\u${sign.charCodeAt(0).toString(16)}`),
    plotly: await plotly.asElement(),
    code: document.getElementById("jakiro-code").textContent,
  };
  return given.replayTemplate.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

export const saveReplay = async (run, json) =>
  download(fileName(run, "html"), await asReplay(json, run.title || run.question), "text/html");

// The styles of the picture are the page's
const STYLES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "paint-order",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-style",
  "text-anchor",
  "text-decoration-line",
  "white-space",
  "direction",
  "unicode-bidi",
];
// No xml file may hold these, and a picture with them would not open
const UNFIT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Cs}/gu;

// The draft tree on screen as the text of an svg file; null where none is drawn. Text stays text
export function treePicture() {
  const shown = document.querySelector(".tree-host svg.tree");
  if (!shown) return null;
  const copy = shown.cloneNode(true);
  const originals = [shown, ...shown.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    element.removeAttribute("style");
    STYLES.forEach((name) => element.style.setProperty(name, style.getPropertyValue(name)));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  copy.style.background = getComputedStyle(document.body).getPropertyValue("--page");
  return new XMLSerializer().serializeToString(copy).replace(UNFIT, "\ufffd");
}

const SAVERS = {
  save_json: async (run) => download(fileName(run, "json"), await asJson(run), "application/json"),
  save_csv: async (run) => {
    const { traces, title } = readTraceFile(await asJson(run));
    download(
      fileName(run, "csv"),
      asCsv(runFromTraces(run.id, run.source, traces, title)),
      "text/csv",
    );
  },
  save_html: async (run) => saveReplay(run, await asJson(run)),
  save_svg: (run) => {
    const file = treePicture();
    if (file) download(fileName(run, "tree.svg"), file, "image/svg+xml");
  },
  save_plot: async (run) => {
    if (plotly.ready(() => SAVERS.save_plot(run)))
      download(fileName(run, "speed.svg"), await speedPicture(run), "image/svg+xml");
    else if (plotly.failed()) notify("notice", say("plot_failed"));
  },
};

export function saveMenu() {
  return h(
    "details.save-menu",
    h("summary.plain-button", say("save")),
    h(
      "div.save-list",
      h("p.muted", say("save_warning")),
      Object.entries(SAVERS).map(([key, save]) =>
        h(
          "button.plain-button",
          {
            "data-save": key,
            onclick: ({ target }) => {
              target.closest("details").open = false;
              if (state.run?.main) save(state.run);
            },
          },
          say(key),
        ),
      ),
    ),
  );
}
