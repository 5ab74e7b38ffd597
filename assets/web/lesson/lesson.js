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
  const list = h(
    "details.lesson-table",
    { ontoggle: () => drawList() },
    h("summary", say("read_as_list")),
    listHost,
  );
  let shown = null;
  const drawList = () =>
    shown && listHost.replaceChildren(...(list.open ? [treeList(...shown)] : []));

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
    view.draw({
      lane: own,
      index,
      phase,
      showAll: false,
      sentence: stepSentence(own, index, phase),
    });
    if (mark !== null) view.focus(mark);
    drawList();
  }
  return { element: h("div", box, list), draw, light: (members) => view.light(members) };
}

// Returns the argument of a stop's function: the recordings, and parts that several stops use
function lessonOf({ device, pairs }) {
  return {
    device,
    pairs,
    greedy: pairs.greedy,
    tree: treeBox,
    stepLine: (lane, step) =>
      h(
        "p.muted.small",
        say("lesson_step_from", {
          step: step.index + 1,
          question: questionsOf(lane.header).at(-1) ?? "",
        }),
      ),
    sourceLine: () =>
      h(
        "p.muted.small.source",
        say("lesson_source_recorded", { device: device.name, date: device.date }),
      ),
  };
}

// Formulas are the only texts with markup. They are constants of this project, never text of a model, so parsing is safe
const drawnFormula = (mathml) =>
  new DOMParser().parseFromString(`<math display="block">${mathml}</math>`, "text/html").body
    .firstChild;

function textColumn(n) {
  const text = given.lessonTexts[n];
  const line = (key) =>
    h("p", { class: `lesson-${key}` }, h("b", say(`lesson_${key}`)), " ", text[key]);
  return h(
    "div.stop-text",
    h("h2", { tabindex: -1 }, text.title),
    h("div.stop-words", h("p", text.idea), line("try"), line("notice"), line("belief")),
    h(
      "details.lesson-table",
      h("summary", say("lesson_formula")),
      drawnFormula(text.formula),
      text.letters && h("p.muted.small", text.letters),
    ),
    text.footnote ? h("p.muted.small.footnote", text.footnote) : null,
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
  const titles = texts.map((text, n) =>
    h(
      "button.stop-title",
      { type: "button", "data-stop": n + 1, onclick: () => go(n) },
      text.title,
    ),
  );
  const strip = h(
    "div.stop-titles",
    CORE.map((n) => titles[n]),
  );
  const others = texts.map((_, n) => n).filter((n) => !CORE.includes(n));
  const more = popMenu(
    "more-stops",
    h("summary.plain-button", say("lesson_more")),
    others.map((n) => titles[n]),
  );
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
    const kind =
      inProjector() && PLAN.includes(current) ? PLAN : CORE.includes(current) ? CORE : others;
    return kind[kind.indexOf(current) + by];
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

  function show() {
    if (!lesson) return;
    if (!built.has(current)) {
      const { screen, demo = [] } = STOPS[current](lesson);
      const used = (event) =>
        event.target.closest(event.type === "click" ? "button[data-control]" : "[data-control]") &&
        redraw();
      built.set(current, {
        draw: () => drawAll(screen),
        demo,
        page: h(
          "div.stop",
          { "data-stop": current + 1 },
          textColumn(current),
          h(
            "section.pane.stop-pane",
            {
              "aria-label": texts[current].title,
              oninput: used,
              onclick: used,
            },
            h("div.stop-screen", elementsOf(screen)),
          ),
        ),
      });
    }
    const { page } = built.get(current);
    body.replaceChildren(page);
    titles.forEach((title, n) =>
      n === current
        ? title.setAttribute("aria-current", "step")
        : title.removeAttribute("aria-current"),
    );
    strip.scrollLeft = titles[current].offsetLeft - strip.offsetLeft - strip.clientWidth / 4;
    back.disabled = beside(-1) === undefined;
    next.textContent =
      beside(1) === undefined
        ? say("lesson_race")
        : `${say("lesson_next")}: ${texts[beside(1)].title}`;
    redraw();
    fit(page);
  }

  // Every change of a control draws the whole stop again from the state of its controls
  const redraw = () => built.get(current).draw();

  // In projector mode, a stop is zoomed out until it fits on the screen
  function fit(page) {
    page.style.zoom = "";
    if (!inProjector()) return;
    for (
      let zoom = 1;
      zoom >= SMALLEST && page.getBoundingClientRect().bottom > onScreen().height - 4;
      zoom -= 0.05
    ) {
      page.style.zoom = zoom;
      built.get(current).draw();
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
    if (built.has(current)) built.get(current).draw();
  }).observe(root);
  onTab.push(tabChanged);
  addEventListener("hashchange", follow);
  follow();
}
