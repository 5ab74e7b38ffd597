// Tokens are bytes: how a run of tokens becomes characters, and how one token is named in trees, cards and tables.

import { attempt } from "./dom.js";

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });

export const fromHex = (hex) =>
  Uint8Array.from(hex.match(/../g) || [], (pair) => parseInt(pair, 16));
export const toHex = (bytes) =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const fromText = (text) => new TextEncoder().encode(text);
export const spacedHex = (bytes) =>
  toHex(bytes)
    .toUpperCase()
    .replace(/..(?=.)/g, "$& ");

const BAD = "\ufffd";

// Returns how many leading bytes are no character, and whether they are cut off at the end ("open") or "bad", grouped as in the
// Encoding Standard; bad bytes are recognized with the byte after them
function brokenBytes(bytes) {
  const reader = new TextDecoder();
  const told = bytes.findIndex((byte) => reader.decode(Uint8Array.of(byte), { stream: true }));
  return told < 0 ? [bytes.length, "open"] : [Math.max(1, told), "bad"];
}

const sizeOf = (point) => 1 + (point > 0x7f) + (point > 0x7ff) + (point > 0xffff);

// One entry per code point: its text, where its bytes start and end, and whether it is "ok", "bad" or "open"
function codePoints(bytes) {
  let end = 0;
  return Array.from(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes), (text) => {
    const start = end;
    const whole = text !== BAD || toHex(bytes.subarray(start, start + 3)) === "efbfbd";
    const [size, state] = whole
      ? [sizeOf(text.codePointAt(0)), "ok"]
      : brokenBytes(bytes.subarray(start));
    end += size;
    return { text, start, end, state };
  });
}

// Runs of characters with their tokens: [{text, first, last, state}]. A character of several tokens is a separate unit
export function units(tokens) {
  const owners = tokens.flatMap((bytes, i) => Array(bytes.length).fill(i)); // the token of each byte
  const points = codePoints(Uint8Array.from(tokens.flatMap((bytes) => [...bytes])));
  const found = [];
  let point = 0;
  for (const { segment } of segmenter.segment(points.map(({ text }) => text).join(""))) {
    const own = points.slice(point, (point += Array.from(segment).length));
    const state = own.findLast((one) => one.state !== "ok")?.state ?? "ok";
    const [first, last] = [owners[own[0].start], owners[own.at(-1).end - 1]];
    const before = found.at(-1);
    const joins =
      before &&
      [before.first, before.last, last].every((token) => token === first) &&
      before.state === "ok" &&
      state === "ok";
    if (joins) before.text += segment;
    else found.push({ text: segment, first, last, state });
  }
  return found;
}

// The same of tokens as lanes hold them; special ones have no characters
export const unitsOf = (tokens) =>
  units(tokens.map((token) => (token.special ? new Uint8Array() : token.bytes)));

const invisible =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]/g;

const run = (count, sign) => (count > 1 ? `${sign}×${count}` : sign);

// A token as it is named outside the answer: white space made visible, half characters as hex.
export function label(bytes) {
  if (!bytes.length) return "‹empty›";
  const text = attempt(() => strict.decode(bytes), null);
  if (text === null) return `‹${spacedHex(bytes)}›`;
  return text
    .replace(/^ +/, (spaces) => run(spaces.length, "␣"))
    .replace(/(\r\n|\n|\r)+/g, (breaks) => run(breaks.replace(/\r\n/g, "\n").length, "↵"))
    .replace(/\t/g, "⇥")
    .replace(/ +$/, (tail) => run(tail.length, "␣"))
    .replace(/(\p{M}{3})\p{M}+/gu, "$1") // a name stays in its line
    .replace(
      invisible,
      (sign) => `‹U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`,
    );
}

// Cut to `most` graphemes with an ellipsis
export function cut(text, most) {
  if (text.length > 64 * most) return cut(text.slice(0, 64 * most), most); // no grapheme on screen is longer than that
  const parts = Array.from(segmenter.segment(text), (part) => part.segment);
  return parts.length <= most ? text : `${parts.slice(0, Math.max(1, most - 1)).join("")}…`;
}
