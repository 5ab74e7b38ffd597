// Elements, words and number formats. Text reaches the page only as text nodes, so nothing a model writes is markup.

// Data of the server for the page: words, drafting methods, the look of plots
export const given = window.Jakiro;

const SVG = "http://www.w3.org/2000/svg";

function fill(create, selector, content) {
  const [tag, ...classes] = selector.split(".");
  const node = create(tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  const [attributes, ...children] = content[0]?.constructor === Object ? content : [{}, ...content];
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

// An element: h("tag.class.class", {attributes}, ...children), attributes and children as needed; text becomes text nodes
export const h = (selector, ...content) =>
  fill((tag) => document.createElement(tag), selector, content);
export const s = (selector, ...content) =>
  fill((tag) => document.createElementNS(SVG, tag), selector, content);

// A menu that closes when focus or press go elsewhere, and with Escape, which leaves the drawer around it open
export function popMenu(kind, summary, ...content) {
  const leave = (target) => target && !menu.contains(target) && (menu.open = false);
  const pressed = ({ target }) => leave(target);
  // Only open menus listen, so that a removed one is forgotten
  const listen = () => {
    if (menu.open) document.addEventListener("pointerdown", pressed);
    else document.removeEventListener("pointerdown", pressed);
  };
  const menu = h(
    "details",
    {
      class: `menu ${kind}`,
      onfocusout: ({ relatedTarget }) => leave(relatedTarget),
      ontoggle: listen,
      onkeydown: (event) => {
        if (event.key !== "Escape" || !menu.open) return;
        event.preventDefault();
        menu.open = false;
        summary.focus();
      },
    },
    summary,
    h("div.menu-list", content),
  );
  return menu;
}

// A button that looks like a link
export const linkButton = (key, onclick, words = say(key)) =>
  h("button.link-button", { "data-action": key, onclick }, words);

// A group of radio buttons as {element, mark(value)}; `choices` are [value, content], and `pick` is called with a value
export function radios(kind, name, choices, pick) {
  const all = choices.map(([value, ...content]) =>
    h(
      "label",
      { class: kind, [`data-${kind}`]: value },
      h("input", { type: "radio", name: kind, onchange: () => pick(value) }),
      content,
    ),
  );
  return {
    element: h("div", { class: `${kind}s`, role: "radiogroup", "aria-label": name }, all),
    mark: (chosen) => all.forEach((one, i) => (one.firstChild.checked = choices[i][0] === chosen)),
  };
}

// A horizontal bar, filled to a share of its width
export const filledBar = (kind, share) =>
  h("span.bar-room", h("span", { class: `bar-fill ${kind}`, style: `width:${100 * share}%` }));

// Facts for reading, and for screen readers
export function table(caption, heads, rows) {
  return h(
    "table.plain-table",
    caption ? h("caption.muted", caption) : null,
    h(
      "thead",
      h(
        "tr",
        heads.map((head) => h("th", { scope: "col" }, head)),
      ),
    ),
    h(
      "tbody",
      rows.map((row) =>
        h(
          "tr",
          row.map((cell, i) => h(i ? "td" : "th", i ? null : { scope: "row" }, h("bdi", cell))),
        ),
      ),
    ),
  );
}

export const setText = (element, text) =>
  element.textContent !== text && (element.textContent = text);

export function say(key, values) {
  const sentence = given.words[key];
  if (sentence === undefined) throw new Error(`no words for ${key}`);
  return sentence.replace(/\{(\w+)\}/g, (whole, name) =>
    values && name in values ? String(values[name]) : whole,
  );
}

// A sentence with **bold** parts
export const bold = (sentence) =>
  sentence.split("**").map((part, i) => (i % 2 ? h("b", part) : part));

// An error with a message for visitors
export class Trouble extends Error {}
export const refuse = (key, values) => {
  throw new Trouble(say(key, values));
};

const formats = [0, 1, 2].map(
  (digits) =>
    new Intl.NumberFormat("en-US", {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    }),
);
export const number = (value, digits) => formats[digits].format(value);

export const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);

// "1 level", "5 levels": the words `one_<name>` and `many_<name>`
export const counted = (name, n) =>
  say(n === 1 ? `one_${name}` : `many_${name}s`, { n: number(n, 0) });

// 41.2 %, in one line; under a tenth of a per cent "<0.1 %"; unknown is a dash, never zero
export function percent(value) {
  if (value === null || value === undefined) return "–";
  const hundred = value * 100;
  return hundred > 0 && hundred < 0.1 ? "<0.1\u00a0%" : `${number(hundred, 1)}\u00a0%`;
}

export const wholePercent = (value) => `${Math.round(value * 100)}\u00a0%`;

export const rate = (value) => (value === null ? "–" : number(value, value >= 100 ? 0 : 1));

export const milliseconds = (value) =>
  value === null || value === undefined ? "–" : number(value, value < 10 ? 1 : 0);

// How far apart two clocks are: "1.4 s", under a tenth of a second "38 ms"
export const apart = (seconds) =>
  Math.abs(seconds) < 0.1
    ? `${number(Math.abs(seconds) * 1000, 0)}\u00a0ms`
    : `${number(Math.abs(seconds), 1)}\u00a0s`;

// A clock: tenths of a second, and hundredths where there are too few tenths to compare
export const clockOf = (seconds) => number(seconds, seconds && seconds < 0.3 ? 2 : 1);

// Returns the result of `work`, or `otherwise` after an error
export function attempt(work, otherwise) {
  try {
    return work();
  } catch {
    return otherwise;
  }
}

// Storage of this visit; a page in a frame may have none, or exceed its quota
export const memory = {
  get: (name) => attempt(() => sessionStorage.getItem(name), null),
  set: (name, value) => attempt(() => sessionStorage.setItem(name, value) ?? true, false),
};

// Returns the address of one of the server's own files, relative to the page, with the signature that a private Space requires
export function addressOf(file) {
  const root = new URL(window.gradio_config?.root || ".", location.href).pathname.replace(
    /\/$/,
    "",
  );
  const signature = /__sign=[^&]+/.exec(location.search);
  return `${root}/${file}${signature ? `?${signature}` : ""}`;
}

// Copies a text and returns whether that worked. Pages without https have no clipboard; there the old command may still work
export async function copied(text) {
  const byApi = navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  return (await byApi) || copyBySelection(text);
}

function copyBySelection(text) {
  const focused = document.activeElement;
  const box = h("textarea.voice", { "aria-hidden": "true" });
  box.value = text;
  (focused?.closest("details") || document.body).append(box); // a menu closes when the focus leaves it
  box.select();
  const worked = attempt(() => document.execCommand("copy"), false);
  box.remove();
  focused?.focus?.({ preventScroll: true });
  return worked;
}

// Calls `draw`; if it replaces the focused control, the new control with the same data gets the focus
export function keepingFocus(root, draw) {
  const before = root.contains(document.activeElement) ? document.activeElement : null;
  draw();
  const data = ({ dataset }) => JSON.stringify(dataset);
  if (before && !before.isConnected && data(before) !== "{}") {
    [...root.querySelectorAll(before.tagName)]
      .find((one) => data(one) === data(before))
      ?.focus({ preventScroll: true });
  }
}

// How much larger than normal the text is, as in projector mode; read once per draw, because it forces a style calculation
let scale = null;
export function pageScale() {
  if (scale === null) {
    scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    queueMicrotask(() => (scale = null));
  }
  return scale;
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// After Tab, Space presses the button that has the focus; after a click, it goes on with the lecture.

let walking = false;
addEventListener("pointerdown", () => (walking = false), true);
addEventListener("keydown", (event) => (walking = event.key === "Tab" || walking), true);

export const isWalking = () => walking;
