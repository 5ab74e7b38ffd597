// Draws the draft tree of one step as SVG: hue and shape show the proposer, the place shows the draft's estimate, and edges show
// the target's result. Phase 1 draws nothing of the result.

import { keepingFocus, pageScale, reducedMotion, s, say, sum, wholePercent } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import {
  bonusDelivered,
  depthOf,
  hasBonus,
  leavesOf,
  nameIn,
  nameOf,
  proposerIn,
  shown,
} from "../data/history.js";
import { isFromPair } from "./evidence.js";
import { layoutTree, stateOf } from "./layout.js";
import { marker, markerNumber } from "./marker.js";

const PHASE_MS = 250;
const LEVEL = 62; // the least width of a level
const NAME_GAP = 44; // pixels of a level besides its longest name: a mark and an edge
const PILL = 24; // and where branches after it may be folded away
const LEAST_SCALE = 0.8; // of type and marks; if names still do not fit, they are cut
const ROW = 15.5; // the least height of a row
const MOST_ROW = 88; // of a small tree, whose nodes have a second line
const SMALL = 8; // guesses
const HEADS = 24; // pixels for the names of the columns
const clamp = (low, value, high) => Math.max(low, Math.min(high, value));
let family = ""; // of the names' type, which stays
const measuring = document.createElement("canvas").getContext("2d");

const measure = (text) => measuring.measureText(text).width;

// Played trees appear level by level
const levelOf = ({ column }) => `--level:${column}`;

// The passes of the draft that made more than one level, as [pass, its first level, its last one]
function sharedPasses({ nodes }) {
  const made = Map.groupBy(
    nodes.filter((node) => node.depth && node.draft_pass),
    (node) => node.draft_pass,
  );
  return [...made]
    .map(([pass, of]) => [
      pass,
      Math.min(...of.map(({ depth }) => depth)),
      Math.max(...of.map(({ depth }) => depth)),
    ])
    .filter(([, first, last]) => first < last);
}

export class TreeView {
  constructor(host, card) {
    this.host = host;
    this.card = card;
    this.opened = new Set();
    this.openedStep = null;
  }

  // `shown`: {lane, index, phase, showAll, spaces; played: guesses and checks come in turn; whole: as wide as its names need}
  draw(shown) {
    const { lane, index } = shown;
    const step = lane.steps[index];
    const key = `${lane.name}/${index}/${lane.header.created}`;
    if (this.openedStep !== key) this.opened = new Set();
    this.openedStep = key;
    const before =
      this.step === step && this.shown.phase !== shown.phase && !reducedMotion()
        ? this.heights()
        : null;
    if (this.step !== step) this.focused = 0;
    Object.assign(this, { shown, step });
    const width = Math.max(this.host.clientWidth, shown.whole ? 120 * (depthOf(step) + 2) : 200);
    const height = Math.max(this.host.clientHeight - 4, 160);
    this.setScale(width, height);
    const { scale } = this;
    const top = (HEADS + (sharedPasses(step).length ? 24 : 0)) * scale;
    const least = ROW * pageScale();
    const room = height - top - 6 * scale;
    const most = shown.showAll ? Infinity : Math.max(3, Math.floor(room / least));
    const plan = layoutTree(step, { phase: shown.phase, most, opened: this.opened });
    const isSmall = step.nodes.length - 1 <= SMALL;
    const row = clamp(least, room / plan.rows, (isSmall ? MOST_ROW : 32) * scale);
    const total = {
      width: Math.max(width, this.starts.at(-1)),
      height: Math.max(height, top + plan.rows * row + 6 * scale),
    };
    this.setFont(Math.min(this.font, 0.9 * row));
    const noted = isSmall && row > 40 * scale;
    Object.assign(this, { plan, row, top, width: total.width, height: total.height, noted });
    this.setLabels();
    const svg = s(
      "svg",
      {
        width: total.width,
        height: total.height,
        class: `tree phase-${shown.phase}${shown.played ? " played" : ""}`,
        role: plan.pills.length ? "group" : "img",
        "aria-label": shown.sentence,
        "data-step": index,
        "data-nodes": step.nodes.length,
        "data-accepted": shown.phase === 3 ? step.accepted_path.join(",") : null,
        style: `--label:${this.font}px;--note:${13 * scale}px`,
      },
      this.columns(),
      this.columnHeads(),
      this.edges(),
      this.nodes(),
      shown.phase > 1 && this.choices(),
      shown.phase === 3 && !bonusDelivered(step) && this.answerEnd(total.height),
    );
    keepingFocus(this.host, () => this.host.replaceChildren(svg));
    this.svg = svg;
    if (before) this.move(before);
  }

  // Computes the size of type and marks and the start of each level, independent of the result: as large as all trees of the
  // lane allow, so that steps look equal, with levels as wide as the names of nodes with children; other names may use the rest of
  // their row. If names do not fit, the step gets smaller, then its longest names are cut.
  setScale(width, height) {
    const { lane } = this.shown;
    const usual = pageScale();
    const free = width / usual - 40;
    this.setType(usual);
    const { nodes } = this.step;
    const branches = Map.groupBy(nodes, (node) => node.parent);
    const folds = !this.shown.showAll && leavesOf(this.step) + 1 > (height / usual - HEADS) / ROW;
    const note = this.step.nodes.length - 1 <= SMALL ? 40 : 0;
    const needed = Array(depthOf(this.step) + 2).fill(note ? 2 * LEVEL : LEVEL);
    const ends = Array(needed.length).fill(0);
    nodes.forEach((node, i) => {
      const wide =
        measure(this.nameAt(i)) / usual +
        NAME_GAP +
        6 * lane.proposers.of(node).number.length +
        (folds && branches.get(i)?.length > 1 ? PILL : note);
      const levels = branches.has(i) || note ? needed : ends;
      levels[node.depth] = Math.max(levels[node.depth], wide);
    });
    ends.forEach((wide, level) => {
      needed[needed.length - 1] += Math.max(0, wide - sum(needed.slice(level)));
    });
    const zoom = clamp(
      1,
      Math.min(height / usual / (34 * (lane.widest + 1)), free / (105 * (lane.deepest + 2))),
      1.5,
    );
    this.setType(usual * clamp(LEAST_SCALE, free / sum(needed), zoom));
    const room = (free * usual) / this.scale;
    let longest = Math.max(...needed);
    const cutTo = (most) => needed.map((wide) => Math.min(wide, most));
    while (longest > LEVEL && sum(cutTo(longest)) > room) longest -= 2;
    const levels = cutTo(longest);
    const more = clamp(0, (room - sum(levels)) / levels.length, 120);
    this.starts = levels.reduce(
      (starts, wide) => [...starts, starts.at(-1) + (wide + more) * this.scale],
      [16 * this.scale],
    );
  }

  setType(scale) {
    this.scale = scale;
    this.setFont(16 * scale);
  }

  setFont(size) {
    this.font = size;
    family ||= getComputedStyle(this.host).getPropertyValue("--sans");
    measuring.font = `600 ${this.font}px ${family || "sans-serif"}`;
  }

  // Places of the nodes, by id
  heights() {
    const found = new Map(
      [...this.plan.places].map(([i, spot]) => [String(i), this.place(spot).y]),
    );
    return this.plan.bonus ? found.set("bonus", this.place(this.plan.bonus).y) : found;
  }

  // Moves nodes from their places in another phase to the current ones; new nodes appear
  move(before) {
    const now = this.heights();
    const timing = { duration: PHASE_MS, easing: "ease-out" };
    for (const group of this.svg.querySelectorAll(".node")) {
      const from = before.get(group.dataset.node);
      group.animate(
        from === undefined
          ? [{ opacity: 0, offset: 0 }]
          : [
              {
                opacity: 1,
                transform: `translateY(${from - now.get(group.dataset.node)}px)`,
                offset: 0,
              },
            ],
        timing,
      );
    }
    this.svg
      .querySelectorAll(".edges, .ghosts, .verdict")
      .forEach((group) => group.animate([{ opacity: 0, offset: 0 }], timing));
  }

  // The bonus token follows the word before it, which may be wider than its column
  place(spot) {
    const x = this.starts[spot.column];
    const { bonus, end } = this.plan;
    const before = spot === bonus && spot.row === this.plan.places.get(end).row;
    return {
      x: before ? Math.max(x, this.labels.get(end).end + 18 * this.scale) : x,
      y: this.top + (spot.row + 0.5) * this.row,
    };
  }

  size(i) {
    if (i === 0) return 9 * this.scale;
    const node = this.step.nodes[i];
    const chance = Math.min(1, Math.exp(node.score - this.step.nodes[node.parent].score));
    return (7 + 11 * Math.sqrt(chance)) * this.scale * (this.row < 20 * this.scale ? 0.85 : 1);
  }

  nameAt(i) {
    return this.named(nameIn(this.shown.lane, this.shown.index, i));
  }

  named(name) {
    return this.shown.spaces ? name : shown(name);
  }

  fit(text, room) {
    if (measure(text) <= room) return text;
    let most = Math.max(3, Math.min(text.length, Math.floor(room / measure("i"))));
    while (most > 3 && measure(cut(text, most)) > room) most -= 1;
    return cut(text, most);
  }

  // Texts after the marks, with their start and end
  setLabels() {
    const { places, pills, bonus } = this.plan;
    const folded = new Map(pills.map((pill) => [pill.parent, pill]));
    this.labels = new Map();
    for (const [i, spot] of places) this.labels.set(i, this.labelOf(i, spot, folded.get(i)));
    if (!bonus) return;
    const { x } = this.place(bonus);
    const start = x + 14 * this.scale;
    const text = this.fit(this.nameAt("bonus"), this.width - x - 24 * this.scale);
    this.labels.set("bonus", { text, start, end: start + measure(text) });
  }

  labelOf(i, spot, folded) {
    const { places, bonus, end, children } = this.plan;
    const { x } = this.place(spot);
    const name = this.nameAt(i);
    const number = this.shown.lane.proposers.of(this.step.nodes[i]).number.length * 6 * this.scale;
    const column = this.starts[spot.column + 1] - 32 * this.scale;
    // The name of a node without visible children has the rest of its row, up to the bonus token
    const isLast = !children[i].some((child) => places.has(child));
    const after = bonus && i === end ? measure(this.nameAt("bonus")) + 38 * this.scale : 0;
    const row = this.width - after - 24 * this.scale;
    const room = (isLast ? Math.max(column, row) : column) - x - number;
    const pill = folded && this.pillOf(folded, room - measure(name), isLast);
    const pillWidth = pill ? pill.width : 0;
    const text = this.fit(name, room - pillWidth);
    const start = x + this.size(i) / 2 + 5 * this.scale + number;
    return { text, start, end: start + measure(text) + 3 * this.scale + pillWidth, pill };
  }

  // The button after a name that opens the folded branches of its node: "+12", or "+" if the name needs the room. Nodes with
  // visible children can do without, because *Show all* opens the branches, too.
  pillOf(folded, room, isLast) {
    const count = `+${folded.size}`;
    const whole = (12 + 7 * count.length) * this.scale;
    const short = 13 * this.scale;
    if (isLast || whole <= room) return { ...folded, text: count, width: whole };
    return short <= room ? { ...folded, text: "+", width: short } : null;
  }

  // One faint column per upcoming token
  columns() {
    const last = Math.max(depthOf(this.step), this.plan.bonus?.column ?? 0);
    const longest = Math.max(...[...this.labels.values()].map((label) => label.end)) + 13;
    const group = s("g.columns-behind");
    for (let column = 1; column <= last; column += 1) {
      const [x, end] = [column, column + 1].map(
        (at) => (this.starts[at] ?? this.width) - 15 * this.scale,
      );
      const wide = (column === last ? clamp(end, longest, this.width) : end) - x - 5;
      const words = say(
        column > 1 ? "tree_column" : wide > 84 * this.scale ? "tree_next" : "tree_next_short",
        {
          n: column,
        },
      );
      group.append(
        s("rect", { x, y: 0, width: Math.max(0, wide), height: this.height - 2, rx: 8 }),
        s("text", { x: x + 8 * this.scale, y: 16 * this.scale }, words),
      );
    }
    return group;
  }

  // A bracket over levels that one pass of the draft made, where their guesses are not all folded away
  columnHeads() {
    const group = s("g.heads");
    const shown = new Set([...this.plan.places.values()].map(({ column }) => column));
    for (const [pass, first, last] of sharedPasses(this.step).filter((one) => shown.has(one[2]))) {
      const x = this.starts[first] - 6;
      const pair = this.step.nodes.some((node) => node.depth === first + 1 && isFromPair(node));
      const words = pair
        ? say("shared_pass_pair")
        : say("shared_pass", { n: pass, levels: last - first + 1 });
      const y = (HEADS + 18) * this.scale;
      group.append(
        s("path.bracket", {
          d: `M${x},${y + 5}v-4H${this.starts[last + 1] - 22 * this.scale}v4`,
        }),
        s("text.pass", { x, y: y - 5 * this.scale }, words),
      );
    }
    return group;
  }

  edge(from, to, size) {
    const turn = to.x - 14 * this.scale;
    const end = to.x - size / 2;
    const start = Math.min(from.x, turn);
    return Math.abs(from.y - to.y) < 0.5
      ? `M${start},${to.y}H${end}`
      : `M${start},${from.y}H${turn}V${to.y}H${end}`;
  }

  edges() {
    const group = s("g.edges");
    const order = { not_reached: 0, refused: 1, cut: 1, accepted: 2 };
    const drawn = [];
    for (const [i, spot] of this.plan.places) {
      if (!i) continue;
      const parent = this.step.nodes[i].parent;
      const from = {
        x: this.labels.get(parent).end,
        y: this.place(this.plan.places.get(parent)).y,
      };
      const to = this.place(spot);
      const state = this.shown.phase === 1 ? "proposed" : stateOf(this.step, i);
      const size = this.size(i) + (state === "accepted" ? 4 * this.scale : 2 * this.scale);
      drawn.push([
        order[state] || 0,
        s("path", { class: `edge ${state}`, style: levelOf(spot), d: this.edge(from, to, size) }),
      ]);
      if (state === "refused") {
        const x = to.x - size / 2 - 3 * this.scale;
        const half = (this.shown.phase === 2 ? 4 : 5) * this.scale;
        drawn.push([
          1,
          this.shown.phase === 2
            ? s("path.edge.cross", {
                style: levelOf(spot),
                d: `M${x - half - 1},${to.y - half}l${2 * half},${2 * half}m0,${-2 * half}l${-2 * half},${2 * half}`,
              })
            : s("path.edge.crossbar", { d: `M${x},${to.y - half}V${to.y + half}` }),
        ]);
      }
    }
    if (this.plan.bonus) {
      const from = {
        x: this.labels.get(this.plan.end).end,
        y: this.place(this.plan.places.get(this.plan.end)).y,
      };
      drawn.push([
        3,
        s("path", {
          class: `edge ${stateOf(this.step, "bonus")}`,
          d: this.edge(from, this.place(this.plan.bonus), 16 * this.scale),
        }),
      ]);
    }
    drawn.sort((a, b) => a[0] - b[0]).forEach(([, path]) => group.append(path));
    return group;
  }

  node(id, spot, size, text) {
    const { lane, index, phase } = this.shown;
    const { x, y } = this.place(spot);
    const proposer = proposerIn(lane, index, id);
    const state = phase === 1 && id ? "proposed" : stateOf(this.step, id);
    const reach = 12 * this.scale;
    const group = s(
      "g",
      {
        class: `node ${state}`,
        "data-node": id,
        "data-state": phase > 1 ? state : null,
        style: levelOf(spot),
        onpointerenter: () => this.card.show(id, group),
        onpointerleave: () => this.card.leave(),
        onclick: () => this.card.pin(id, group),
      },
      s("rect.reach", {
        x: x - reach,
        y: y - Math.max(this.row / 2, 8),
        height: Math.max(this.row, 16),
        width: Math.max(24, text.end - x + reach),
      }),
      s("text", { x: text.start, y: y + this.font * 0.35 }, text.text),
      this.noted &&
        id !== 0 &&
        s(
          "text.note",
          {
            x: text.start + (text.text.startsWith(" ") ? measure(" ") : 0),
            y: y + this.font * 0.35 + 17 * this.scale,
          },
          this.noteOf(id),
        ),
      s(
        "g",
        { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` },
        marker(proposer, size),
        markerNumber(proposer, size, 9 * this.scale),
      ),
    );
    return group;
  }

  // The second line of a node in a small tree
  noteOf(id) {
    if (id === "bonus") return say("note_bonus");
    const node = this.step.nodes[id];
    if (this.shown.phase === 1)
      return node.draft_prob === null
        ? ""
        : say("note_sure", { percent: wholePercent(node.draft_prob) });
    const state = stateOf(this.step, id);
    if (state !== "refused") return say(`note_${state}`);
    const { target_choice: token, target_choice_piece: piece } = this.step.nodes[node.parent];
    return say("note_refused", {
      choice: this.named(nameOf(this.shown.lane, token, piece)).trim(),
    });
  }

  nodes() {
    const group = s("g.nodes");
    for (const [i, spot] of this.plan.places) {
      const text = this.labels.get(i);
      group.append(this.node(i, spot, this.size(i), text));
      if (text.pill) group.append(this.pill(i, spot, text));
    }
    if (this.plan.bonus) {
      const label = this.labels.get("bonus");
      group.append(this.node("bonus", this.plan.bonus, 15 * this.scale, label));
    }
    return group;
  }

  pill(parent, spot, text) {
    const { y } = this.place(spot);
    const { size, members } = text.pill;
    const width = text.pill.width - 3 * this.scale;
    const x = text.end - width - 1;
    const tokens = members.map((i) => this.nameAt(i)).join("  ");
    const open = (event) => {
      if (event.key && !["Enter", " "].includes(event.key)) return;
      event.preventDefault();
      this.opened.add(parent);
      this.draw(this.shown);
    };
    return s(
      "g.pill",
      {
        role: "button",
        tabindex: 0,
        "data-step": this.shown.index,
        "data-parent": parent,
        "data-size": size,
        onclick: open,
        onkeydown: open,
      },
      s("title", say("folded", { n: size, tokens })),
      s("rect", { x, y: y - 8 * this.scale, width, height: 16 * this.scale, rx: 4 }),
      s("text", { x: x + width / 2, y: y + this.font * 0.33 }, text.pill.text),
    );
  }

  // Where the target's choice along the accepted path is no candidate, a ghost label names it
  choices() {
    const group = s("g.ghosts");
    const unnamed = this.plan.bonus || !hasBonus(this.step) ? this.plan.end : null;
    for (const [i, spot] of this.plan.places) {
      if ((i && !this.step.accepted_path.includes(i)) || i === unnamed) continue;
      const node = this.step.nodes[i];
      const child = this.plan.children[i].find(
        (c) => this.step.nodes[c].token_id === node.target_choice,
      );
      const { y } = this.place(spot);
      if (child === undefined && this.noted && this.plan.children[i].length) continue;
      if (child === undefined) {
        const first = this.plan.children[i].find((c) => this.plan.places.has(c));
        const name = `→${this.named(nameOf(this.shown.lane, node.target_choice, node.target_choice_piece))}`;
        const below = first !== undefined;
        group.append(
          s(
            "text",
            {
              x: this.labels.get(i).end - (below ? 4 : 0) * this.scale,
              y: y + this.font * (below ? -0.45 : 0.35),
              "data-choice-of": i,
            },
            this.fit(
              name,
              Math.min(
                this.starts[spot.column + 1] - this.starts[spot.column],
                this.width - this.labels.get(i).end,
              ),
            ),
          ),
        );
      } else if (this.plan.places.has(child) && this.shown.phase === 2) {
        const to = this.place(this.plan.places.get(child));
        const x = to.x - 12 * this.scale - this.size(child) / 2;
        group.append(
          s("path.tick", {
            style: levelOf(this.plan.places.get(child)),
            d: `M${x - 2},${to.y - 5}l3,3l5,-7`,
          }),
        );
      }
    }
    return group;
  }

  // Where the answer ended inside the accepted path
  answerEnd(height) {
    const group = s("g.verdict");
    const end = this.place({ column: this.plan.places.get(this.plan.last).column + 1, row: 0 });
    const x = Math.max(end.x - 20 * this.scale, this.labels.get(this.plan.last).end + 4);
    const fits = x + measure(say("cut_here")) < this.width;
    group.append(
      s("path.border", { d: `M${x},${this.top - 8}V${height - 14 * this.scale}` }),
      s(
        "text.border-words",
        {
          x: x + (fits ? 4 : -4),
          y: height - 4 * this.scale,
          "text-anchor": fits ? "start" : "end",
        },
        say("cut_here"),
      ),
    );
    return group;
  }

  // A step with the arrow keys from node `from`: parent, first child, next or previous sibling
  neighbour(from, key) {
    const { children, places } = this.plan;
    const visible = (list) => list.filter((i) => places.has(i));
    const node = this.step.nodes[from];
    if (key === "ArrowLeft") return node.parent >= 0 ? node.parent : from;
    if (key === "ArrowRight") return visible(children[from])[0] ?? from;
    if (node.parent < 0) return from;
    const siblings = visible(children[node.parent]);
    const next = siblings.indexOf(from) + (key === "ArrowDown" ? 1 : -1);
    return siblings[clamp(0, next, siblings.length - 1)];
  }

  // Marks nodes, and no others
  light(members) {
    this.host
      .querySelectorAll(".node")
      .forEach((node) => node.classList.toggle("lit", members.includes(Number(node.dataset.node))));
  }

  // Node of the arrow keys
  focus(id) {
    this.host
      .querySelectorAll(".node")
      .forEach((node) => node.classList.toggle("focused", node.dataset.node === String(id)));
    this.focused = id === "bonus" ? 0 : id;
  }

  // Arrows walk from node to node and show its card, Enter pins it; false for other keys
  onKey({ key }) {
    if (!this.step || !(key === "Enter" || /^Arrow/.test(key))) return false;
    if (key !== "Enter") this.focus(this.neighbour(this.focused, key));
    const element = this.element(this.focused);
    if (element && key === "Enter") this.card.pin(this.focused, element);
    else if (element) {
      this.card.close();
      this.card.show(this.focused, element);
    }
    return true;
  }

  element(id) {
    return this.svg && this.svg.querySelector(`[data-node="${id}"]`);
  }
}
