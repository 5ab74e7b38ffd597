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
    const filled = JSON.parse(JSON.stringify(layout), (name, value) =>
      name === "size"
        ? value * pageScale()
        : typeof value === "string" && value.startsWith("$")
          ? now[value.slice(1)]
          : value,
    );
    drawn = { key, colours: now, layout: filled, scale: pageScale() };
  }
  return drawn;
}

const lookOf = (role) => looks[role] || looks.main;

// A line as Plotly draws it
function lineOf(role) {
  const { colour, width, dash } = lookOf(role);
  return { color: template().colours[colour], width: width * template().scale, dash };
}

function markerOf(role, size) {
  const { colour, symbol } = lookOf(role);
  return {
    color: template().colours[colour],
    symbol,
    size: size * template().scale,
    line: { width: 1.75, color: template().colours[colour] },
  };
}

// Escapes text for Plotly, which parses tags, entities and line breaks in every text
const plotText = (text) =>
  cut(
    String(text).replace(/[\u0000-\u001f\u007f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, " "),
    MOST_NAME,
  )
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;");

export const plotStyle = { template, lineOf, markerOf, plotText };
