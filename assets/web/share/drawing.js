// Pictures that leave the page: an svg is put together out of sight, where the page's styles reach it, and comes back as a
// file of its own that carries them, or as the pixels of a png. What a model wrote is in text nodes only.

import { h, s } from "../base/dom.js";
import { cut } from "../base/pieces.js";

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order",
  "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "text-decoration-line", "white-space",
  "direction", "unicode-bidi"];
// No xml file may hold these, and a picture with them would not open
const UNFIT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Cs}/gu;
const fit = (text) => text.replace(UNFIT, "\ufffd");
const [SHORTEST, LONGEST] = [4, 400]; // graphemes of a line
const measuring = document.createElement("canvas").getContext("2d");

// The text of an svg file with the styles that apply to each of its elements now
function fileOf(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    STYLES.forEach((name) => element.style.setProperty(name, style.getPropertyValue(name)));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  return fit(new XMLSerializer().serializeToString(copy));
}

// The file that `draw` makes in a place of the page that nobody sees
function drawnFile(draw) {
  const stage = h("div", { class: "jk-stage", "aria-hidden": "true" });
  document.querySelector(".jk-view").append(stage);
  try {
    const svg = draw(stage);
    stage.append(svg);
    return fileOf(svg);
  } finally {
    stage.remove();
  }
}

// A promise of a canvas with the file's picture, in its own size
async function canvasOf(file) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(file)}`;
  await image.decode();
  const canvas = h("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas;
}

const page = (width, height) => s("svg", { class: "picture", width, height, viewBox: `0 0 ${width} ${height}` },
  s("rect", { class: "paper", width, height }));

function widthOf(words, size, weight = 400) {
  measuring.font = `${weight} ${size}px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  return measuring.measureText(words).width;
}

// One line of text within `room`: smaller down to `least` where it is too long, then cut
function line(words, x, y, { size: wanted, least = wanted, weight = 400, look = "ink", room = Infinity }) {
  const size = Math.min(wanted, Math.max(least, (wanted * room) / widthOf(words, wanted, weight) || wanted));
  let most = Math.max(SHORTEST, Math.min(words.length, LONGEST));
  let shown = cut(words, most);
  while (most > SHORTEST && widthOf(shown, size, weight) > room) {
    most = Math.max(SHORTEST, Math.min(most - 1, Math.ceil((most * room) / widthOf(shown, size, weight))));
    shown = cut(words, most);
  }
  return s("text", { class: look, x, y, style: `font-size:${size}px;font-weight:${weight}` }, shown);
}

export const drawing = { drawnFile, canvasOf, page, line, widthOf };
