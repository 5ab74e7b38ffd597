// A small markdown reader that builds elements, never markup: headings, lists, code, emphasis; links stay text.

import { h, say } from "./dom.js";
import { redraw } from "../page/machine.js";

const INLINE = /(`[^`\n]+`)|(\*\*[^*\n]+\*\*)|(\*[^*\s][^*\n]*\*)|(!?\[[^\]\n]*\]\([^)\n]*\))/;

function inline(text) {
  const parts = [];
  let rest = text;
  for (let match = INLINE.exec(rest); match; match = INLINE.exec(rest)) {
    parts.push(rest.slice(0, match.index));
    const found = match[0];
    if (match[1]) parts.push(h("code", null, found.slice(1, -1)));
    else if (match[2]) parts.push(h("strong", null, found.slice(2, -2)));
    else if (match[3]) parts.push(h("em", null, found.slice(1, -1)));
    else parts.push(found.replace(/^!?\[([^\]]*)\]\((.*)\)$/, "$1 ($2)"));
    rest = rest.slice(match.index + found.length);
  }
  return [...parts, rest];
}

function blocks(text) {
  const made = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; i += 1) {
    const line = lines[i];
    const heading = /^(#{1,4})\s+(.*)/.exec(line);
    const item = /^\s*(?:[-*+]|(\d+)[.)])\s+(.*)/.exec(line);
    if (line.startsWith("```")) {
      const code = [];
      for (i += 1; i < lines.length && !lines[i].startsWith("```"); i += 1) code.push(lines[i]);
      made.push(h("pre", null, h("code", null, code.join("\n"))));
    } else if (heading) made.push(h(`h${heading[1].length + 2}`, { dir: "auto" }, inline(heading[2])));
    else if (item) {
      const tag = item[1] ? "OL" : "UL";
      let list = made[made.length - 1];
      if (!list || list.tagName !== tag) {
        list = h(tag.toLowerCase(), item[1] ? { start: item[1] } : null);
        made.push(list);
      }
      list.append(h("li", { dir: "auto" }, inline(item[2])));
    } else if (line.trim()) {
      const before = made[made.length - 1];
      if (before && before.tagName === "P" && lines[i - 1] && lines[i - 1].trim()) before.append("\n", ...inline(line));
      else made.push(h("p", { dir: "auto" }, inline(line)));
    }
  }
  return made;
}

let drawn = null;
let drawnAt = 0;

// At most twice a second, and only when the text has changed
export function drawMarkdown(host, text, before) {
  const now = performance.now();
  if (text === drawn && host.childNodes.length) return;
  if (now - drawnAt < 500 && host.childNodes.length) {
    setTimeout(() => redraw("text"), 500);
    return;
  }
  drawn = text;
  drawnAt = now;
  host.replaceChildren(h("p", { class: "muted" }, say("markdown_hint")), ...(before ? [before] : []), ...blocks(text));
}
