// A whole chat as a file: its turns on screen as Markdown, or everything that is stored of it as JSON.

import { say } from "../base/dom.js";
import { loadChat, titleOf } from "./keep.js";
import { VERSION, storedTrace, storedTurns, whenStored } from "./store.js";
import { download, plainName } from "../page/save.js";

export const asMarkdown = (title, turns) =>
  [
    `# ${title}`,
    ...turns.flatMap(({ question, answer }) => [
      `**${say("you")}:** ${question}`,
      answer.replace(/�+$/, ""),
    ]),
  ].join("\n\n") + "\n";

async function asJson(record) {
  const turns = await storedTurns(record.id);
  for (const turn of turns) turn.traces = (await storedTrace(turn.id)) ?? null;
  return JSON.stringify({ version: VERSION, chat: record, turns });
}

export async function exportChat(record, kind) {
  await whenStored();
  const chat = await loadChat(record);
  const title = record.title || titleOf(chat);
  const [text, type] =
    kind === "md"
      ? [asMarkdown(title, chat.path), "text/markdown"]
      : [await asJson(record), "application/json"];
  download(`jakiro-${plainName(title)}.${kind}`, text, type);
}
