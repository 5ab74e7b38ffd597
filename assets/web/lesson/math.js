// The lesson's formulas as MathML: drawn by the browser itself, read aloud by screen readers, no network.

import { h, say } from "../base/dom.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";

function m(tag, ...children) {
  const element = document.createElementNS(MATHML, tag);
  for (const child of children.flat()) element.append(child);
  return element;
}

const id = (name) => m("mi", name);
const word = (key, values) => m("mtext", say(`math_${key}`, values));
const sign = (symbol) => m("mo", symbol);
const digits = (value) => m("mn", String(value));
const row = (...parts) => m("mrow", parts);
const sub = (base, index) => m("msub", base, index);
const sup = (base, index) => m("msup", base, index);
const over = (top, bottom) => m("mfrac", top, bottom);

const sum = (index) => m("munder", sign("∑"), index);

const FORMULAS = [() => row(id("T"), sign("≳"), over(word("weights"), word("speed"))),
  () => row(id("P"), sign("="), sub(id("p"), digits(1)), sign("·"), sub(id("p"), digits(2)), sign("⋯"), sub(id("p"), id("n"))),
  () => row(sub(id("score"), id("x")), sign("="), sub(id("r"), id("x")), sign("+"),
    sum(id("e")), sub(id("w"), id("e")), sign("·"), m("msubsup", id("s"), id("x"), id("e"))),
  () => row(sub(id("f"), row(id("t"), sign("+"), digits(2))), sign("="), id("x"),
    sign("+"), sub(id("a"), digits(1)), sign("·"), sub(id("y"), word("stronger")),
    sign("−"), sub(id("a"), digits(2)), sign("·"), sub(id("y"), word("weaker"))),
  () => row(over(word("tokens"), id("s")), sign("="),
    over(row(digits(1), sign("+"), sum(id("i")), sup(id("e"), sub(id("score"), id("i")))),
      row(sub(id("T"), word("draft")), sign("+"), sub(id("T"), word("check"))))),
  () => row(sub(id("M"), row(id("i"), id("j"))), sign("="), sign("{"),
    m("mtable",
      m("mtr", m("mtd", digits(1)), m("mtd", word("if", { i: "i", j: "j" }))),
      m("mtr", m("mtd", digits(0)), m("mtd", word("else"))))),
  () => row(word("tokens"), sign("="), word("accepted"), sign("+"), digits(1)),
  () => row(sub(id("x"), id("t")), sign("="), m("munder", id("argmax"), id("v")), sign("("),
    id("log"), sub(id("p"), id("t")), sign("("), id("v"), sign(")"), sign("+"),
    id("g"), sign("("), id("seed"), sign(","), id("t"), sign(","), id("v"), sign(")"), sign(")")),
  () => row(word("speedup"), sign("="),
    over(row(id("τ"), sign("·"), id("T")), row(sub(id("T"), word("draft")), sign("+"), sub(id("T"), word("check"))))),
  () => row(id("τ"), sign("="), over(word("written"), word("steps")))];

// What the letters of a formula are, by stop
const LEGENDS = { 2: "formula_experts", 3: "formula_contrast", 7: "formula_dice" };

function formula(stop) {
  const math = m("math", FORMULAS[stop]());
  math.setAttribute("display", "block");
  const legend = LEGENDS[stop];
  return legend ? h("div", null, math, h("p", { class: "muted small" }, say(legend))) : math;
}

export const lessonFormula = formula;
