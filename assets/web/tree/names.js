// The names of tokens outside the answer's text.

import { fromHex, label } from "../base/pieces.js";

// The name of a token in tree, card and tables; special tokens by their name
export function nameOf(lane, id, hexOrBytes) {
  const special = lane.header.special_tokens[String(id)];
  if (special) return `‹${special.replace(/^<\|?|\|?>$/g, "")}›`;
  return label(typeof hexOrBytes === "string" ? fromHex(hexOrBytes) : hexOrBytes);
}

// A name as a tree shows it: the space before a word is a gap
export const shown = (name) => name.replace(/^␣(?!×)/, " ");

// The root's name: the last kept tokens before a step
export function rootName(lane, index, count = 1) {
  const before = lane.countAfter(index - 1);
  return lane.tokens.slice(Math.max(0, before - count), before).map((token) => nameOf(lane, token.id, token.bytes)).join("");
}
