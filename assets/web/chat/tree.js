// A chat as a tree. Each node is a run: one question with its answer. The children of a node are the turns that may follow it, and
// siblings are other answers, other wordings of a question, or answers that continue from a chosen word.

export class Chat {
  constructor(id, values) {
    Object.assign(this, { id, title: "", created: Date.now(), skipped: 0, ...values });
    Object.assign(this, { parent: null, children: [], chosen: null });
  }

  // The turns on screen, oldest first
  get path() {
    const turns = [];
    for (let node = this.chosen; node; node = node.chosen) turns.push(node);
    return turns;
  }

  // The last turn on screen, or the chat itself while it is empty
  get leaf() {
    return this.path.at(-1) ?? this;
  }
}

// The turns from the first one down to `node`; none for the chat itself
export const turnsUpTo = (node) => (node.parent ? [...turnsUpTo(node.parent), node] : []);

// Every turn of every branch below a node, parents before their children
export const turnsBelow = (node) => node.children.flatMap((child) => [child, ...turnsBelow(child)]);

export const chatOf = (node) => (node.parent ? chatOf(node.parent) : node);

// Puts a turn and its ancestors on screen
export function choose(turn) {
  for (let node = turn; node.parent; node = node.parent) node.parent.chosen = node;
}

export function addTurn(parent, turn) {
  Object.assign(turn, { parent, branches: parent.children });
  parent.children.push(turn);
  choose(turn);
}

// Removes a turn with everything below it; the sibling before it takes its place on screen
export function removeTurn(turn) {
  const { children } = turn.parent;
  const at = children.indexOf(turn);
  children.splice(at, 1);
  if (turn.parent.chosen === turn) turn.parent.chosen = children[Math.max(0, at - 1)] ?? null;
}
