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
    .map(([title, minutes]) => [title, Math.round(minutes)]);
  if (new Set(known.map(([, minutes]) => minutes)).size < 2) return "";
  return say("unequal_heads", {
    heads: known.map(([title, minutes]) => say("head_minutes", { title, minutes })).join(", "),
  });
}

// The tooltip about a head's training; null if unknown
export const trainedWords = (minutes) =>
  minutes === undefined ? null : say("trained", { minutes: Math.round(minutes) });

const marked = (id, label, sentence, hue, shape, place, number) => ({
  id,
  label,
  sentence,
  shape,
  place,
  number,
  hue: String(hue),
  classes: `hue-${hue} by-${place}`,
});
// After the last hue the first one is used again, with a number next to the shape
const proposerAt = (place, { id, label, sentence }) =>
  marked(
    id,
    label,
    sentence,
    place % SHAPES.length,
    SHAPES[place % SHAPES.length],
    place,
    place < SHAPES.length ? "" : String(place + 1),
  );

export const TARGET = marked(
  null,
  say("target"),
  say("target_sentence"),
  "target",
  "star",
  "target",
  "",
);
const ROOT = marked(null, say("root"), "", "root", "circle", "root", "");

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
    return this.byId.get(id) || this.add({ id, label: id, sentence: "" });
  }

  of(node) {
    return node.parent < 0 ? ROOT : this.named(node.proposer);
  }

  // The proposer for a place in a router's weights
  at(place) {
    return (
      this.all[place] || proposerAt(place, { id: null, label: String(place + 1), sentence: "" })
    );
  }
}

// Shown while there is no answer: the proposers of the default method
export const usualProposers = new Proposers(drafting[0].proposers);

export const usualMethod = drafting[0];
