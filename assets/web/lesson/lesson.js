// "Learn", ten stops over shipped recordings: titles, a stop's text and figure, links to it, and shared parts of stops.

import { given, h, popMenu, say } from "../base/dom.js";
import { bringBack, onScreen } from "../base/frame.js";
import { oneAtATime } from "../base/server.js";
import { armQuestion } from "../chat/asking.js";
import { questionsOf } from "../data/history.js";
import { button, drawAll, elementsOf, primary, question } from "./controls.js";
import { laneWith, readLesson } from "./data.js";
import { chainStop } from "./stops/chain.js";
import { diceStop } from "./stops/dice.js";
import { contrastiveStop, expertsStop } from "./stops/experts.js";
import { familyStop } from "./stops/family.js";
import { maskStop } from "./stops/mask.js";
import { passesStop } from "./stops/passes.js";
import { speedStop } from "./stops/speed.js";
import { treesStop } from "./stops/trees.js";
import { verdictStop } from "./stops/verdict.js";
import { inProjector, onTab, pages, setTab, state } from "../page/machine.js";
import { setAddress } from "../share/address.js";
import { linkedStop } from "../share/link.js";
import { Card } from "../tree/card.js";
import { treeList } from "../tree/rows.js";
import { TreeView } from "../tree/tree.js";
import { stepSentence } from "../watch/words.js";

const SMALLEST = 0.6; // smallest zoom of a stop in projector mode
const PLAN = [0, 1, 2, 3, 4, 5, 6, 7, 8]; // indices of the stops in the lesson plan of docs/teaching.md
const CORE = [0, 1, 2, 4, 6, 7]; // indices of the stops that “Next” leads through; the others are optional

// A draft tree with card, arrow keys and list. `of()` returns {lane, step, phase, mark}, the node `mark` gets the keyboard
// focus; `onPick` is called instead of pinning the card
function treeBox(of, onPick) {
  const host = h("div.tree-host.lesson-tree", { tabindex: 0 });
  const box = h("div.tree-pane.lesson-tree-pane", h("div.tree-room", host));
  const card = new Card(box);
  if (onPick) card.pin = (id) => onPick(id);
  const view = new TreeView(host, card);
  const listHost = h("div");
  const summary = h("summary", say("read_as_list"));
  const list = h("details.lesson-table", { ontoggle: drawList }, summary, listHost);
  let shown = null;
  function drawList() {
    if (shown) listHost.replaceChildren(list.open ? treeList(...shown) : "");
  }

  host.addEventListener("keydown", (event) => {
    if (event.key === "Escape") card.close();
    if (view.onKey(event)) event.preventDefault();
  });

  function draw() {
    const { lane, step, phase = 3, mark = null } = of();
    const { index } = step;
    const own = laneWith(lane, index, step);
    shown = [own, index, phase];
    card.about(own, index, phase);
    card.close();
    const sentence = stepSentence(own, index, phase);
    view.draw({ lane: own, index, phase, showAll: false, sentence });
    if (mark !== null) view.focus(mark);
    drawList();
  }
  return { element: h("div", box, list), draw, light: (members) => view.light(members) };
}

// Returns the argument of a stop's function: the recordings, and parts that several stops use
function lessonOf({ device, pairs }) {
  const stepWords = (lane, step) =>
    say("lesson_step_from", {
      step: step.index + 1,
      question: questionsOf(lane.header).at(-1) ?? "",
    });
  const source = say("lesson_source_recorded", { device: device.name, date: device.date });
  return {
    device,
    pairs,
    greedy: pairs.greedy,
    tree: treeBox,
    stepLine: (lane, step) => h("p.muted.small", stepWords(lane, step)),
    sourceLine: () => h("p.muted.small.source", source),
  };
}

// Formulas are the only texts with markup. They are constants of this project, never text of a model, so parsing is safe
const drawnFormula = (mathml) =>
  new DOMParser().parseFromString(`<math display="block">${mathml}</math>`, "text/html").body
    .firstChild;

function textColumn(n) {
  const text = given.lessonTexts[n];
  const { formula, letters, footnote } = text;
  const line = (key) => h(`p.lesson-${key}`, h("b", say(`lesson_${key}`)), " ", text[key]);
  const symbols = letters && h("p.muted.small", letters);
  const summary = h("summary", say("lesson_formula"));
  return h(
    "div.stop-text",
    h("h2", { tabindex: -1 }, text.title),
    h("div.stop-words", h("p", text.idea), line("try"), line("notice"), line("belief")),
    h("details.lesson-table", summary, drawnFormula(formula), symbols),
    footnote ? h("p.muted.small.footnote", footnote) : null,
    question(n, text),
  );
}

const stopNow = () => linkedStop(location);
const STOPS = [
  passesStop,
  chainStop,
  expertsStop,
  contrastiveStop,
  treesStop,
  maskStop,
  verdictStop,
  diceStop,
  speedStop,
  familyStop,
];

export function mountLesson(element, server) {
  const root = element.querySelector(".jk-lesson");
  const texts = given.lessonTexts;
  const body = h("div.stop-body", h("p.muted.empty", say("lesson_loading")));
  const titles = texts.map(({ title }, n) => {
    const attributes = { type: "button", "data-stop": n + 1, onclick: () => go(n) };
    return h("button.stop-title", attributes, title);
  });
  const titlesOf = (stops) => stops.map((n) => titles[n]);
  const strip = h("div.stop-titles", titlesOf(CORE));
  const others = [...texts.keys()].filter((n) => !CORE.includes(n));
  const moreSummary = h("summary.plain-button", say("lesson_more"));
  const more = popMenu("more-stops", moreSummary, titlesOf(others));
  const back = button("back", say("lesson_back"), () => go(beside(-1)));
  const next = primary(button("next", say("lesson_next"), () => forward()));
  root.append(
    h("nav.lesson-nav", { "aria-label": say("lesson_nav") }, strip, more),
    body,
    h("div.lesson-turn", back, next),
  );

  // The previous or next stop in the current order: the lesson plan in projector mode, else the core stops or the optional
  // ones; undefined at the ends
  function beside(by) {
    const orders = [...(inProjector() ? [PLAN] : []), CORE, others];
    const order = orders.find((stops) => stops.includes(current));
    return order[order.indexOf(current) + by];
  }

  // After the last stop, the Race tab is opened for the visitor's own question
  const forward = () => (beside(1) === undefined ? armQuestion() : go(beside(1)));
  // In projector mode, the forward key first plays the stop's demo, then goes to the next stop
  let played = 0;
  function ahead() {
    const { demo } = built.get(current) || { demo: [] };
    if (!inProjector() || played >= demo.length) return forward();
    played += 1;
    return demo[played - 1]();
  }
  Object.assign(pages, { back: () => beside(-1) !== undefined && go(beside(-1)), next: ahead });

  const built = new Map();
  let current = stopNow() ?? 0;
  let lesson = null;

  function build() {
    const { screen, demo = [] } = STOPS[current](lesson);
    const redrawAfter = (selector) => (event) => event.target.closest(selector) && redraw();
    const attributes = {
      "aria-label": texts[current].title,
      oninput: redrawAfter("[data-control]"),
      onclick: redrawAfter("button[data-control]"),
    };
    const content = h("div.stop-screen", elementsOf(screen));
    const pane = h("section.pane.stop-pane", attributes, content);
    const page = h("div.stop", { "data-stop": current + 1 }, textColumn(current), pane);
    built.set(current, { draw: () => drawAll(screen), demo, page });
  }

  function show() {
    if (!lesson) return;
    if (!built.has(current)) build();
    const { page } = built.get(current);
    body.replaceChildren(page);
    titles.forEach((title, n) => (title.ariaCurrent = n === current ? "step" : null));
    strip.scrollLeft = titles[current].offsetLeft - strip.offsetLeft - strip.clientWidth / 4;
    back.disabled = beside(-1) === undefined;
    const following = texts[beside(1)];
    next.textContent = following ? `${say("lesson_next")}: ${following.title}` : say("lesson_race");
    redraw();
    fit(page);
  }

  // Every change of a control draws the whole stop again from the state of its controls
  const redraw = () => built.get(current).draw();

  // In projector mode, a stop is zoomed out until it fits on the screen
  function fit(page) {
    page.style.zoom = "";
    if (!inProjector()) return;
    const isTooTall = () => page.getBoundingClientRect().bottom > onScreen().height - 4;
    for (let zoom = 1; zoom >= SMALLEST && isTooTall(); zoom -= 0.05) {
      page.style.zoom = zoom;
      redraw();
    }
  }

  const visible = () => state.tab === "lesson";
  function go(n) {
    current = n;
    played = 0;
    more.open = false;
    show();
    setAddress(`#stop-${current + 1}`);
    const heading = body.querySelector("h2");
    heading?.focus({ preventScroll: true });
    if (heading) bringBack(heading);
  }

  const load = oneAtATime(async () => {
    const text = server ? await server.lesson_recordings() : null;
    if (!text) return body.replaceChildren(h("p.muted.empty", say("lesson_missing")));
    lesson = lessonOf(readLesson(text));
    show();
  });

  function tabChanged() {
    if (!visible()) return;
    if (lesson) show();
    else load();
    setAddress(`#stop-${current + 1}`);
  }

  function follow() {
    const wanted = stopNow();
    if (wanted === null) return;
    current = wanted;
    if (visible()) show();
    else if (document.body.dataset.jakiroTab) setTab("lesson");
    else requestAnimationFrame(follow);
  }

  let width = 0;
  new ResizeObserver(() => {
    if (!visible() || Math.abs(root.clientWidth - width) < 2) return;
    width = root.clientWidth;
    built.get(current)?.draw();
  }).observe(root);
  onTab.push(tabChanged);
  addEventListener("hashchange", follow);
  follow();
}
