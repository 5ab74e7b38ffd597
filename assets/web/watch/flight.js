// Kept words fly from the tree into the answer.

import { h, reducedMotion } from "../base/dom.js";
import { tempo } from "../page/machine.js";

const FLIGHT_SHARE = 0.55; // of the phase's time
const APART_SHARE = 0.06;

// From each kept node of a step to its token in the answer; `root` holds both
export function fly({ root, answerText, treeHost, ladderHost }, { main, index, step }) {
  if (reducedMotion()) return;
  const phase = tempo()[2];
  const frame = root.getBoundingClientRect();
  const box = answerText.closest(".answer-scroll").getBoundingClientRect();
  answerText
    .querySelectorAll(`[data-step="${index}"][data-token]:not(.sign)`)
    .forEach((token, i) => {
      const { node } = main.tokens[Number(token.dataset.token)];
      const id = node < 0 ? "bonus" : node;
      const from = [treeHost, ladderHost]
        .map((host) => host.querySelector(`[data-node="${id}"] :is(text, bdi)`))
        .find((text) => text?.getClientRects().length);
      const to = token.getBoundingClientRect();
      if (!from || to.top < box.top - 8 || to.bottom > box.bottom + 8 || step.nodes.length < 2)
        return;
      const start = from.getBoundingClientRect();
      const word = h(
        "span.flying",
        { style: `left:${to.left - frame.left}px;top:${to.top - frame.top}px` },
        token.textContent,
      );
      word.lands = token;
      root.append(word);
      const timing = {
        duration: FLIGHT_SHARE * phase,
        delay: i * APART_SHARE * phase,
        easing: "ease-in-out",
        fill: "backwards",
      };
      token.animate([{ opacity: 0 }, { opacity: 0, offset: 0.95 }, { opacity: 1 }], timing);
      word
        .animate(
          [
            { transform: `translate(${start.left - to.left}px, ${start.top - to.top - 4}px)` },
            { transform: "none" },
          ],
          timing,
        )
        .finished.then(
          () => word.remove(),
          () => word.remove(),
        );
    });
}

// Removes flying words whose token was redrawn during the flight
export const land = ({ root }) =>
  root.querySelectorAll(".flying").forEach((word) => word.lands.isConnected || word.remove());
