// Tokens are bytes: how a run of tokens becomes characters, and how one token is named in trees, cards and tables.

const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const encoder = new TextEncoder();

export const fromHex = (hex) => Uint8Array.from(hex.match(/../g) || [], (pair) => parseInt(pair, 16));
export const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const fromText = (text) => encoder.encode(text);
export const spacedHex = (bytes) => toHex(bytes).toUpperCase().replace(/..(?=.)/g, "$& ");

const BAD = "\ufffd";

// One entry per code point: its text, where its bytes start and end, and whether it is "ok", "bad" or "open"
// (cut off by the end of the bytes). Bad bytes are grouped as the Encoding Standard groups them.
function codePoints(bytes) {
  const reader = new TextDecoder("utf-8", { ignoreBOM: true });
  const found = [];
  let start = 0;
  const add = (text, end, state) => {
    found.push({ text, start, end, state });
    start = end;
  };
  // That one is cut off is only told with the byte after it
  const take = (text, i) => (text === BAD && toHex(bytes.subarray(start, i + 1)) !== "efbfbd" ? add(text, Math.max(i, start + 1), "bad")
    : add(text, i + 1, "ok"));
  bytes.forEach((_, i) => [...reader.decode(bytes.subarray(i, i + 1), { stream: true })].forEach((text) => take(text, i)));
  if (start < bytes.length) add(BAD, bytes.length, "open");
  return found;
}

// Runs of characters with the tokens they lie in: [{text, first, last, state}], first === last for most. A
// character (grapheme) spread over several tokens is one unit of its own.
export function units(tokens) {
  const starts = [];
  let size = 0;
  for (const bytes of tokens) {
    starts.push(size);
    size += bytes.length;
  }
  const all = new Uint8Array(size);
  tokens.forEach((bytes, i) => all.set(bytes, starts[i]));
  const points = codePoints(all);
  const text = points.map((point) => point.text).join("");
  const found = [];
  let point = 0;
  let token = 0;
  for (const { segment } of segmenter.segment(text)) {
    const from = points[point].start;
    let state = "ok";
    let left = segment.length;
    while (left > 0) {
      if (points[point].state !== "ok") state = points[point].state;
      left -= points[point].text.length;
      point += 1;
    }
    const to = points[point - 1].end;
    while (token + 1 < starts.length && starts[token + 1] <= from) token += 1;
    let last = token;
    while (last + 1 < starts.length && starts[last + 1] < to) last += 1;
    const before = found[found.length - 1];
    const joins = before && before.first === token && before.last === token && last === token
      && before.state === "ok" && state === "ok";
    if (joins) before.text += segment;
    else found.push({ text: segment, first: token, last, state });
  }
  return found;
}

// The same of tokens as lanes hold them; special ones have no characters
export const unitsOf = (tokens) => units(tokens.map((token) => (token.special ? new Uint8Array() : token.bytes)));

const invisible = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]/;

const run = (count, sign) => (count > 1 ? `${sign}×${count}` : sign);

// A token as it is named outside the answer: white space made visible, half characters as hex.
export function label(bytes) {
  if (!bytes.length) return "‹empty›";
  const points = codePoints(bytes);
  if (points.some((point) => point.state !== "ok")) return `‹${spacedHex(bytes)}›`;
  const text = points.map((point) => point.text).join("");
  const spaces = text.match(/^ +/);
  let rest = text;
  let start = "";
  if (spaces) {
    start = run(spaces[0].length, "␣");
    rest = text.slice(spaces[0].length);
  }
  rest = rest
    .replace(/(\r\n|\n|\r)+/g, (breaks) => run(breaks.replace(/\r\n/g, "\n").length, "↵"))
    .replace(/\t/g, "⇥")
    .replace(/ +$/, (tail) => run(tail.length, "␣"));
  rest = rest.replace(/(\p{M}{3})\p{M}+/gu, "$1"); // a name stays in its line
  return start + Array.from(rest, (character) => (invisible.test(character)
    ? `‹U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›` : character)).join("");
}

// Cut to `most` graphemes with an ellipsis
export function cut(text, most) {
  if (text.length > 64 * most) return cut(text.slice(0, 64 * most), most); // no grapheme on screen is longer than that
  const parts = Array.from(segmenter.segment(text), (part) => part.segment);
  return parts.length <= most ? text : `${parts.slice(0, Math.max(1, most - 1)).join("")}…`;
}
