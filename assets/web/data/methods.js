// Proposers: the drafting methods by name, and the hue, shape and number for a proposer's place in its lane.

import { given, say } from "../base/dom.js";

const SHAPES = ["circle", "square", "diamond", "triangle"];
const [plainMethod, ...drafting] = given.methods;

const methodNamed = (name) =>
  given.methods.find((one) => one.name === name || one.aliases.includes(name));
export const isPlain = (name) => methodNamed(name) === plainMethod;
// The title of a method; unknown methods keep their name
export const methodTitle = (name) => (methodNamed(name) || { title: name }).title;

// One sentence if the heads in a race were not trained equally long, else nothing; from [title, minutes]
export function unequalHeads(pairs) {
  const known = pairs
    .filter(([, minutes]) => minutes !== undefined)
    .map(([title, minutes]) => ({ title, minutes: Math.round(minutes) }));
  if (new Set(known.map(({ minutes }) => minutes)).size < 2) return "";
  return say("unequal_heads", { heads: known.map((head) => say("head_minutes", head)).join(", ") });
}

// The tooltip about a head's training; null if unknown
export const trainedWords = (minutes) =>
  minutes === undefined ? null : say("trained", { minutes: Math.round(minutes) });

function marked({ id = null, label, sentence = "" }, shape, hue, place, number = "") {
  const classes = `hue-${hue} by-${place}`;
  return { id, label, sentence, shape, place, number, hue: String(hue), classes };
}
// After the last hue the first one is used again, with a number next to the shape
function proposerAt(place, proposer) {
  const hue = place % SHAPES.length;
  return marked(proposer, SHAPES[hue], hue, place, place < SHAPES.length ? "" : String(place + 1));
}

const targetWords = { label: say("target"), sentence: say("target_sentence") };
export const TARGET = marked(targetWords, "star", "target", "target");
const ROOT = marked({ label: say("root") }, "circle", "root", "root");

// A lane's proposers in the header's order, followed by names that are not in the header
export class Proposers {
  constructor(listed) {
    this.all = [];
    this.byId = new Map();
    listed.forEach((proposer) => this.add(proposer));
  }

  add(proposer) {
    const made = proposerAt(this.all.length, proposer);
    this.all.push(made);
    this.byId.set(proposer.id, made);
    return made;
  }

  named(id) {
    return this.byId.get(id) || this.add({ id, label: id });
  }

  of(node) {
    return node.parent < 0 ? ROOT : this.named(node.proposer);
  }

  // The proposer for a place in a router's weights
  at(place) {
    return this.all[place] || proposerAt(place, { label: String(place + 1) });
  }
}

// Shown while there is no answer: the proposers of the default method
export const usualProposers = new Proposers(drafting[0].proposers);

export const usualMethod = drafting[0];
