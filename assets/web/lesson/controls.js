// Controls that the stops share: sliders with their value in words, switches, and the check question.

import { h, pageScale, say } from "../base/dom.js";
import { armQuestion } from "../chat/asking.js";
import { questionBox } from "../chat/box.js";
import { table } from "../watch/tables.js";

let used = 0;
const nextId = (name) => `lesson-${name}-${(used += 1)}`;

// A slider that says its value in words; `set` moves it without calling `onInput`
function slider({ name, label, min, max, step = 1, value, format, onInput }) {
  const id = nextId(name);
  const output = h("output", { class: "tabular", for: id });
  const input = h("input", { type: "range", id, min, max, step, value, "data-control": name });
  const show = () => {
    const words = format(Number(input.value));
    output.textContent = words;
    input.setAttribute("aria-valuetext", words);
  };
  input.addEventListener("input", () => {
    show();
    onInput(Number(input.value));
  });
  show();
  return {
    element: h("div", { class: "lesson-slider" }, h("label", { for: id }, label), input, output),
    get value() {
      return Number(input.value);
    },
    set(next) {
      input.value = next;
      show();
    },
    // As a hand does
    move(next) {
      this.set(next);
      onInput(Number(input.value));
    },
  };
}

// A row of buttons of which one is pressed: {value: words}
function choice({ name, label, options, value, onPick }) {
  const buttons = Object.entries(options).map(([key, words]) =>
    h("button", { class: "choice", type: "button", "data-control": name, "data-value": key,
      "aria-pressed": String(key === String(value)), onclick: () => {
        set(key);
        onPick(key);
      } }, words),
  );
  const set = (key) =>
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.value === String(key))));
  const id = nextId(name);
  return { element: h("div", { class: "lesson-choice", role: "group", "aria-labelledby": id }, h("span", { id }, label),
    h("span", { class: "segments" }, buttons)), set, press: (key) => buttons.find((one) => one.dataset.value === String(key)).click() };
}

const onOff = (name, label, onPick) => choice({ name, label, options: { on: say("on"), off: say("off") }, value: "on",
    onPick: (value) => onPick(value === "on") });

// The sentence that says what a control has done
const result = (name, more = "") => h("p", { class: `result ${more}`, role: "status", "data-result": name });

const button = (name, words, onclick) =>
  h("button", { type: "button", class: "lesson-button", "data-control": name, onclick }, words);

// A number with its name above and its definition below
function figure(name, title, note) {
  const value = h("div", { class: "figure-value tabular", "data-figure": name });
  const small = h("div", { class: "figure-note" }, note || "");
  return {
    element: h("div", { class: "figure" }, h("div", { class: "figure-name" }, title), value, small),
    set(words, noteWords) {
      value.textContent = words;
      if (noteWords !== undefined) small.textContent = noteWords;
    },
  };
}

// A plot's width in its own units: in a hall it is drawn larger with everything in it
const widthOf = (host) => Math.max(300, Math.min((host.clientWidth || 560) / pageScale(), 900));

const closedTable = (summary, heads, rows) =>
  h("details", { class: "lesson-table" }, h("summary", null, summary), table(null, heads, rows));

// Leads from the lesson to a question of one's own
function raceButton() {
  const element = button("race", say("lesson_race"), () => {
    armQuestion();
    questionBox()?.focus();
  });
  element.classList.add("primary");
  return element;
}

// One question: choosing never blocks the way on; a wrong answer gives its reason and another try
function question(stop, text) {
  const name = nextId("answer");
  const feedback = h("p", { class: "feedback", role: "status" });
  const inputs = text.options.map(([words], i) => {
    const id = nextId("option");
    return h("div", { class: "option" }, h("input", { type: "radio", name, id, value: i, "data-option": i }),
      h("label", { for: id }, words));
  });
  const act = h("button", { type: "submit", class: "lesson-button", "data-control": "check" }, say("lesson_check"));
  const form = h("form", { class: "lesson-question", "data-question": stop + 1 },
    h("fieldset", null, h("legend", null, h("b", null, say("lesson_check_title")), " ", text.question), inputs), act,
    feedback);
  const clear = () => {
    form.dataset.result = "";
    feedback.replaceChildren();
    act.textContent = say("lesson_check");
  };
  form.addEventListener("change", clear);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.dataset.result === "wrong") {
      form.reset();
      clear();
      inputs[0].querySelector("input").focus();
      return;
    }
    const chosen = form.querySelector("input:checked");
    if (!chosen) {
      feedback.replaceChildren(say("lesson_pick"));
      return;
    }
    const right = Number(chosen.value) === text.right;
    form.dataset.result = right ? "right" : "wrong";
    feedback.replaceChildren(h("b", null, `${right ? "✓" : "✗"} ${say(right ? "lesson_right" : "lesson_wrong")}`),
      ` ${text.options[Number(chosen.value)][1]}`);
    act.textContent = say(right ? "lesson_check" : "lesson_again");
  });
  return form;
}

export const lessonControls = { slider, choice, onOff, button, result, figure, widthOf, closedTable, question, raceButton };
