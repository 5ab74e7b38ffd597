// How plots look: the template that the reports of `bench` and `train` have too, in the colours that the page has now.

import { given, h, pageScale } from "../base/dom.js";
import { cut } from "../base/pieces.js";

const MOST_NAME = 60;
const { layout, looks, colours } = given.plotTemplate;
let drawn = { key: null };

// Colours computed by the browser, including those of a visitor's own palette
function computed() {
  const probe = h("i", { hidden: true });
  (document.querySelector(".jk-view") || document.body).append(probe);
  const found = {};
  for (const name of Object.keys(colours.light)) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

// The current {colours, layout, looks}, computed again only if the page's colours or its size change
function template() {
  const asked = ["(forced-colors: active)", "(prefers-color-scheme: dark)"].map(
    (query) => matchMedia(query).matches,
  );
  const key = `${document.body.className}|${asked}|${pageScale()}`;
  if (key !== drawn.key) {
    const now = computed();
    const filled = JSON.parse(JSON.stringify(layout), (name, value) => {
      if (name === "size") return value * pageScale();
      const isColour = typeof value === "string" && value.startsWith("$");
      return isColour ? now[value.slice(1)] : value;
    });
    drawn = { key, colours: now, layout: filled, scale: pageScale() };
  }
  return drawn;
}

const lookOf = (role) => looks[role] || looks.main;

// A line as Plotly draws it
function lineOf(role) {
  const { colours, scale } = template();
  const { colour, width, dash } = lookOf(role);
  return { color: colours[colour], width: width * scale, dash };
}

function markerOf(role, size) {
  const { colours, scale } = template();
  const { colour, symbol } = lookOf(role);
  const color = colours[colour];
  return { color, symbol, size: size * scale, line: { width: 1.75, color } };
}

// Escapes text for Plotly, which parses tags, entities and line breaks in every text
function plotText(text) {
  const controls = /[\u0000-\u001f\u007f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;
  const name = cut(String(text).replace(controls, " "), MOST_NAME);
  return name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

export const plotStyle = { template, lineOf, markerOf, plotText };
