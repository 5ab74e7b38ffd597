// A proposer's shape in its hue, with its number where the hue is used twice; trees, legends and cards share it.

import { s } from "../base/dom.js";

function polygon(count, radius, turn, inner) {
  const corners = Array.from({ length: count }, (_, i) => {
    const angle = turn + (i * 2 * Math.PI) / count;
    const r = inner && i % 2 ? inner : radius;
    return `${(r * Math.cos(angle)).toFixed(2)},${(r * Math.sin(angle)).toFixed(2)}`;
  });
  return `M${corners.join("L")}Z`;
}

// A marker's outline around 0,0; all shapes look equally heavy at one size
function outline(shape, size) {
  const r = size / 2;
  if (shape === "square") return polygon(4, r * 1.25, Math.PI / 4);
  if (shape === "diamond") return polygon(4, r * 1.28, 0);
  if (shape === "triangle") return polygon(3, r * 1.3, -Math.PI / 2);
  if (shape === "star") return polygon(10, r * 1.4, -Math.PI / 2, r * 0.62);
  return `M${r},0A${r},${r} 0 1 1 ${-r},0A${r},${r} 0 1 1 ${r},0Z`;
}

export const marker = ({ shape, classes }, size, extra) =>
  s("path", { d: outline(shape, size), class: `marker ${classes} ${extra || ""}` });

// The number of a proposer that shares hue and shape with another one, right of a marker at 0,0; null if it has none
export const markerNumber = ({ number }, size, font) =>
  number
    ? s(
        "text.marker-number",
        {
          x: size / 2 + font * 0.25,
          y: font * 0.35,
          style: `font-size:${font}px`,
        },
        number,
      )
    : null;

// A small drawing of a proposer's marker for legends and cards
export function markerSample(proposer, hollow) {
  const wide = 18 + 6 * proposer.number.length;
  return s(
    "svg.sample",
    {
      viewBox: `-9 -9 ${wide} 18`,
      width: (14 * wide) / 18,
      height: 14,
      "aria-hidden": "true",
    },
    marker(proposer, 12, hollow ? "hollow" : ""),
    markerNumber(proposer, 12, 10),
  );
}
