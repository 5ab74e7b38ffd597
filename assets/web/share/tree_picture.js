// A picture of the draft tree that leaves the page, with question, step and legend: an svg is put together out of sight, where
// the page's styles reach it, and comes back as a file that carries them, or as the pixels of a png. Text stays text.

import { counted, h, s, say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { depthOf } from "../data/history.js";
import { TARGET } from "../data/methods.js";
import { marker, markerNumber } from "../tree/marker.js";

const WIDTH = 1920;
const MARGIN = 80;
const ROOM = WIDTH - 2 * MARGIN;
const HEAD = 150;
const FOOT = 130;
const MOST = 400; // graphemes of a line
const LONGEST_LABEL = 30;
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order",
  "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "text-decoration-line", "white-space",
  "direction", "unicode-bidi"];
// No xml file may hold these, and a picture with them would not open
const UNFIT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Cs}/gu;

const measuring = document.createElement("canvas").getContext("2d");
function widthOf(words, size, weight = 400) {
  measuring.font = `${weight} ${size}px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  return measuring.measureText(words).width;
}

// A line of text, cut where it would be too long
function line(words, y, size, look = "muted", weight = 400) {
  let most = Math.min(words.length, MOST);
  while (most > 4 && widthOf(cut(words, most), size, weight) > ROOM) most -= Math.ceil(most / 20);
  return s("text", { class: look, x: MARGIN, y, style: `font-size:${size}px;font-weight:${weight}` }, cut(words, Math.max(4, most)));
}

// Who proposes; smaller where there are many
function legend(lane, y) {
  const entries = [...lane.proposers.all, TARGET].map((one) => ({ one, words: cut(one.label, LONGEST_LABEL) }));
  const wide = ({ one, words }) => widthOf(words, 100) / 100 + 2.5 + 0.5 * one.number.length;
  const size = Math.min(26, ROOM / entries.reduce((sum, entry) => sum + wide(entry), 0));
  let x = MARGIN;
  return entries.map((entry) => {
    const { one, words } = entry;
    const group = s("g", { transform: `translate(${x} ${y})` }, s("g", { transform: `translate(${size * 0.4} ${-size * 0.35})` },
      marker(one, size * 0.8), markerNumber(one, size * 0.8, size * 0.7)),
    s("text", { class: "muted", x: size * (1.25 + 0.5 * one.number.length), style: `font-size:${size}px` }, words));
    x += size * wide(entry);
    return group;
  });
}

// The text of an svg file with the styles that apply to each of its elements now
function fileOf(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    STYLES.forEach((name) => element.style.setProperty(name, style.getPropertyValue(name)));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  return new XMLSerializer().serializeToString(copy).replace(UNFIT, "\ufffd");
}

// The tree on screen as an svg file; null where none is drawn
export function treePicture(run, index) {
  const shown = document.querySelector(".tree-host svg.tree");
  if (!shown) return null;
  const { header, steps } = run.main;
  const { target, drafter, device, dtype, numerics, created } = header;
  const [width, height] = ["width", "height"].map((name) => Number(shown.getAttribute(name)));
  const [tree, tall] = [shown.cloneNode(true), Math.round((height * ROOM) / width)];
  for (const [name, value] of Object.entries({ x: MARGIN, y: HEAD, width: ROOM, height: tall, viewBox: `0 0 ${width} ${height}` })) {
    tree.setAttribute(name, value);
  }
  const about = [say("draft_tree"), say("step_of", { step: index + 1, steps: steps.length }),
    counted("candidate", steps[index].nodes.length - 1), counted("level", depthOf(steps[index]))].join(" · ");
  const made = [target.name, drafter ? drafter.name : "–", device, dtype, numerics, String(created).slice(0, 10)].join(" · ");
  const [all, below] = [HEAD + tall + FOOT, HEAD + tall];
  const picture = s("svg", { class: "picture", width: WIDTH, height: all, viewBox: `0 0 ${WIDTH} ${all}` },
    s("rect", { class: "paper", width: WIDTH, height: all }), line(run.question, 70, 40, "ink", 600), line(about, 118, 28), tree,
    legend(run.main, below + 50), line(made, below + 100, 24));
  const stage = h("div", { class: "jk-stage", "aria-hidden": "true" }, picture);
  document.querySelector(".jk-view").append(stage);
  const file = fileOf(picture);
  stage.remove();
  return file;
}

// A promise of a canvas with the file's picture, in its own size
export async function canvasOf(file) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(file)}`;
  await image.decode();
  const canvas = h("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas;
}
