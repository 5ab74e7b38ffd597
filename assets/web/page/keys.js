// Keys and clickers act while the focus is in the view, in a hall wherever it is but in text fields; elsewhere the page scrolls.

import { isWalking } from "../base/dom.js";
import { toQuestion } from "../chat/box.js";
import { inProjector, moves, pages, state } from "./machine.js";

const isTextField = ({ tagName, type, isContentEditable }) =>
  tagName === "TEXTAREA" ||
  isContentEditable ||
  (tagName === "INPUT" && !["range", "checkbox", "radio", "button", "file"].includes(type));
// Where keys have a meaning of their own: a slider's arrows, a list of choices, tabs that are walked through
const hasOwnKeys = ({ tagName, type, role, id }, key) =>
  tagName === "SELECT" ||
  (tagName === "INPUT" && type === "range" && id !== "jk-step" && !key.startsWith("Page")) ||
  ((role === "tab" || type === "radio") && isWalking() && key.startsWith("Arrow"));

// Escape closes an open list of choices first, and not also the drawer around it
export function keepDrawer(event) {
  if (event.key === "Escape" && event.target.ariaExpanded === "true") event.preventDefault();
}

export function onKey(event, parts) {
  const { seek, follow, setPhase, guessFirst, advance, ahead, back } = moves;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const { target, key } = event;
  if (isTextField(target)) {
    // If Escape closes a drawer, the browser moves the focus
    if (key === "Escape" && !target.closest(":popover-open")) target.blur();
    return undefined;
  }
  if (hasOwnKeys(target, key)) return;
  if (key === "Escape") return parts.card.close();
  if (!inProjector() && !target.closest?.(".jk-view")) return;
  if (target === parts.treeHost && parts.tree.onKey(event)) return event.preventDefault();
  if (key === " " && isWalking() && ["BUTTON", "SUMMARY", "A", "INPUT"].includes(target.tagName))
    return;
  if (key.length === 1 && key !== " " && event.repeat) return;
  const far = event.shiftKey ? 10 : 1;
  const turned = {
    ArrowRight: pages.next,
    PageDown: pages.next,
    " ": pages.next,
    ArrowLeft: pages.back,
    PageUp: pages.back,
  };
  const shown = {
    ArrowLeft: () => seek(state.index - far),
    ArrowRight: () => seek(state.index + far),
    PageUp: back,
    PageDown: ahead,
    Home: () => seek(0),
    End: () => seek(Infinity),
    " ": advance,
    1: () => setPhase(1),
    2: () => setPhase(2),
    3: () => setPhase(3),
    g: () => guessFirst(!state.guess),
    l: follow,
    a: () => parts.alternatives.openStep(state),
    q: toQuestion,
  };
  // The stops of the lesson are turned like pages
  const byKey = { watch: shown, race: shown, lesson: turned }[state.tab] || {};
  const move = byKey[key] || byKey[key.toLowerCase()];
  if (!move) return;
  event.preventDefault();
  move();
}
