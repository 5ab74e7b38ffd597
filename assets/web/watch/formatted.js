// An answer's text formatted as Markdown, with every character kept: signs of a format (stars, fences, pipes) are present and
// hidden. Links stay text, html stays text, and character references are not decoded.

import { h, say } from "../base/dom.js";
import { getLanguage, highlight } from "../vendor/highlight.js";
import { fromMarkdown, gfmTable, gfmTableFromMarkdown } from "../vendor/markdown.js";

const OFF = [
  "htmlFlow",
  "htmlText",
  "characterEscape",
  "characterReference",
  "hardBreakEscape",
  "definition",
];
const OPTIONS = {
  extensions: [gfmTable(), { disable: { null: OFF } }],
  mdastExtensions: [gfmTableFromMarkdown()],
};
const TAGS = {
  paragraph: "p",
  emphasis: "em",
  strong: "strong",
  blockquote: "blockquote",
  listItem: "li",
  table: "table",
  tableRow: "tr",
};
const DEEPEST = 20; // deeper ones are shown as they were written
const LONGEST_LANGUAGE = 20;
const LONGEST_COLOURED = 8000; // characters of code; it is highlighted again with each token

// Code as [[kind, text], …], where kind is a class of highlight.js without its prefix, or null
function coloured(code, language) {
  if (!getLanguage(language ?? "") || code.length > LONGEST_COLOURED) return [[null, code]];
  const { value } = highlight(code, { language, ignoreIllegals: true });
  const { body } = new DOMParser().parseFromString(`<body><pre>\n${value}`, "text/html");
  const found = [];
  const walk = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { parentElement, data } = walk.currentNode;
    found.push([/hljs-(\w+)/.exec(parentElement.className)?.[1] ?? null, data]);
  }
  return found;
}

// The blocks of a text as [{node, start, end}], offsets from `from` on; a block without a node is shown as it was written
export function blocksOf(text, from, formatted) {
  if (!formatted)
    return text
      .split(/(?<=\n)/)
      .map((line) => ({ node: null, start: from, end: (from += line.length) }));
  const { children } = fromMarkdown(text, OPTIONS);
  const starts = children.map((node, i) =>
    i ? text.lastIndexOf("\n", node.position.start.offset) + 1 : 0,
  );
  if (!children.length) return text ? [{ node: null, start: from, end: from + text.length }] : [];
  return children.map((node, i) => ({
    node,
    base: from,
    start: from + starts[i],
    end: from + (starts[i + 1] ?? text.length),
  }));
}

// Writes one block into elements; `write(parent, to, sign)` writes the characters of the answer that are not yet written, up
// to an offset, as tokens; a sign is one that the format uses up
export class BlockWriter {
  constructor(source, write, onCopy) {
    Object.assign(this, { source, write, onCopy });
  }

  // The block's element; the following text is written into `last`
  block({ node, base, end }) {
    this.base = base;
    const element = node ? this.element(node, 0) : h("span");
    if (!node) this.last = element;
    this.write(this.last, end, Boolean(node));
    return element;
  }

  element(node, depth, head) {
    const [start, end] = [node.position.start, node.position.end].map(
      ({ offset }) => this.base + offset,
    );
    if (depth > DEEPEST) return this.asWritten(h("span"), start, end);
    if (node.type === "code") return this.code(node, start, end);
    if (node.type === "inlineCode") return this.value(h("code"), node, start, end);
    if (node.type === "thematicBreak")
      return this.hidden(h("div.rule", { role: "separator" }), end);
    const element =
      node.type === "heading"
        ? h(`h${Math.min(6, node.depth + 2)}`, { dir: "auto" })
        : node.type === "list"
          ? h(node.ordered ? "ol" : "ul", node.ordered ? { start: node.start } : null)
          : node.type === "tableCell"
            ? h(head ? "th" : "td", { dir: "auto" })
            : TAGS[node.type]
              ? h(TAGS[node.type], node.type === "paragraph" ? { dir: "auto" } : null)
              : null;
    if (!element) return this.asWritten(h("span"), start, end);
    if (!["list", "table", "tableRow"].includes(node.type)) this.last = element;
    node.children.forEach((child, i) => {
      if (child.type === "text")
        this.value(
          element,
          child,
          this.base + child.position.start.offset,
          this.base + child.position.end.offset,
        );
      else if (child.type === "break")
        this.hidden(element, this.base + child.position.end.offset).append(h("br"));
      else element.append(this.element(child, depth + 1, node.type === "table" ? i === 0 : head));
    });
    return element;
  }

  asWritten(element, start, end) {
    this.write(element, start, true);
    this.write(element, end, false);
    return (this.last = element);
  }

  hidden(element, end) {
    this.write(element, end, true);
    return (this.last = element);
  }

  // A node's value; its characters are in the source in the same order, with signs between them
  value(element, { value }, start, end) {
    this.write(element, start, true);
    this.copy(element, value, start, end);
    return (this.last = element);
  }

  // Returns the offset up to which characters are written
  copy(element, value, start, end) {
    let at = start;
    for (let i = 0; i < value.length && at < end; i += 1) {
      const found = this.source.indexOf(value[i], at);
      if (found < 0 || found >= end) continue;
      if (found > at) this.write(element, found, true);
      at = found + 1;
      while (i + 1 < value.length && at < end && this.source[at] === value[i + 1])
        [i, at] = [i + 1, at + 1];
      this.write(element, at, false);
    }
    return at;
  }

  code(node, start, end) {
    const code = h("code");
    const fenced = /^[`~]{3}/.test(this.source.slice(start, start + 3));
    const opened = fenced ? this.source.indexOf("\n", start) + 1 || end : start;
    let at = Math.min(opened, end);
    this.write(code, at, true);
    for (const [kind, text] of coloured(node.value, node.lang)) {
      const part = kind ? h("span", { class: `syntax-${kind}` }) : code;
      if (kind) code.append(part);
      at = this.copy(part, text, at, end);
    }
    this.last = code;
    return h(
      "div.code-box",
      { "data-language": (node.lang || "").slice(0, LONGEST_LANGUAGE) },
      h("button.plain-button.copy-code", {
        "aria-label": say("copy_code"),
        onclick: () => this.onCopy(node.value),
      }),
      h("pre", { tabindex: 0, dir: "ltr" }, code),
    );
  }
}

// Whether a line of some length has come three times
const LONG_LINE = 12;
export function repeatsItself(text) {
  const counts = new Map();
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line.length >= LONG_LINE)
    .some((line) => counts.set(line, (counts.get(line) || 0) + 1).get(line) >= 3);
}
