// The chats of this browser: which one is open, how a new one starts, and the drawer that lists them all.

import { attempt, counted, h, linkButton, memory, popMenu, say } from "../base/dom.js";
import { notify } from "../base/server.js";
import { resume, stopAll } from "./asking.js";
import { questionBox } from "./box.js";
import { exportChat } from "./export.js";
import { importOldChat, loadChat, loadSteps, saveChat, titleOf, unsaved } from "./keep.js";
import { deleteChat, deleteEverything, putChat, storedChats, whenStored } from "./store.js";
import { Chat, choose, turnsBelow } from "./tree.js";
import { Run } from "../data/history.js";
import { rememberForm } from "../page/form.js";
import { change, newId, onTurn, redrawNow, screen, show, state } from "../page/machine.js";

const VISIT = "jakiro-visit"; // of this tab: the chat that is open, and the answer that is being written
const OLD_CHAT = "jakiro-chat"; // where release 0.10 kept the chat
const DAY_MS = 24 * 3600 * 1000;

// Shows a turn, once its steps are loaded; the last request counts
let requested = null;
export async function showTurn(run) {
  requested = run;
  await loadSteps(run);
  if (requested === run) show(run);
}
onTurn.show = showTurn;

// Opens a chat at its last turn
async function openChat(chat) {
  change({ chat, from: null, putAway: null });
  const last = chat.leaf;
  if (last === chat) show(null);
  else await showTurn(last);
}

export async function openStored(record) {
  if (record.id !== state.chat.id) await openChat(await loadChat(record));
}

// Starts a new chat; the one before stays in the drawer, and Undo returns to it
export function newChat() {
  stopAll();
  const putAway = state.turns.length ? state.chat : state.putAway;
  notify(null);
  change({ chat: new Chat(newId()), from: null });
  show(null);
  change({ putAway });
}

export const undoNewChat = () => openChat(state.putAway);

// Turns before this many are not sent with the next question
export function leaveOut(count) {
  state.chat.skipped = count;
  saveChat(state.chat);
  redrawNow();
}

function remember() {
  const run = state.waiting || [...state.open.values(), ...unsaved].at(-1) || state.lost;
  const writing = run && {
    id: run.id,
    form: run.form,
    typed: run.typed || run.question,
    under: run.parent ? null : (run.under?.parent && run.under.id) || null,
  };
  memory.set(VISIT, JSON.stringify({ chat: state.chat.id, writing }));
  rememberForm(questionBox()?.value);
}

// Imports a chat of release 0.10 from the session storage
function importOld() {
  const old = attempt(() => JSON.parse(memory.get(OLD_CHAT) || "null"), null);
  memory.set(OLD_CHAT, "");
  if (!old?.runs?.length) return;
  const chat = new Chat(newId());
  attempt(() => importOldChat(chat, old.runs));
  if (chat.children.length) openChat(chat);
}

// Opens the chat that this tab showed before a reload, and continues its answer
export async function restore() {
  importOld();
  const visit = attempt(() => JSON.parse(memory.get(VISIT) || "null"), null);
  memory.set(VISIT, "");
  if (!visit) return;
  const record = (await storedChats()).find(({ id }) => id === visit.chat);
  const chat = record ? await loadChat(record) : state.chat;
  if (!visit.writing) return record && openChat(chat);
  const { id, form, typed, under } = visit.writing;
  const turns = turnsBelow(chat);
  const known = turns.find((turn) => turn.id === id);
  const parent = turns.find((turn) => turn.id === under) ?? chat;
  const run = known ?? Object.assign(new Run(id, "live"), { form, under: parent });
  state.seen.add(id);
  if (known) {
    choose(known);
    change({ chat });
  } else await openChat(chat);
  return resume(Object.assign(run, { typed }));
}

addEventListener("pagehide", () => screen.server && remember());

// The drawer

const group = (updated) => {
  const days = Math.floor(new Date().setHours(24, 0, 0, 0) / DAY_MS - updated / DAY_MS);
  return say(days < 1 ? "chats_today" : days < 2 ? "chats_yesterday" : "chats_earlier");
};

export class ChatsDrawer {
  constructor() {
    this.list = h("div.chats-list");
    const button = (key, action) =>
      h("button.plain-button", { "data-action": key, onclick: action }, say(key));
    this.element = h(
      "aside.chats",
      { id: "jk-chats", popover: "auto", "aria-label": say("chats") },
      h(
        "div.chats-head",
        h("h2", say("chats")),
        button("new_chat", () => this.leave(newChat)),
        h(
          "button.icon-button",
          {
            "aria-label": say("close"),
            onclick: () => this.element.hidePopover(),
          },
          "×",
        ),
      ),
      this.list,
      h(
        "div.chats-foot.muted",
        h("span", say("chats_kept")),
        this.sure("delete_all", () => this.deleteAll()),
      ),
    );
    this.element.addEventListener("toggle", ({ newState }) => newState === "open" && this.draw());
  }

  leave(action) {
    this.element.hidePopover();
    action();
  }

  async draw() {
    await whenStored();
    const chats = (await storedChats()).sort((a, b) => b.updated - a.updated);
    const groups = new Map();
    for (const chat of chats) {
      const name = group(chat.updated);
      groups.set(name, [...(groups.get(name) ?? []), chat]);
    }
    this.list.replaceChildren(
      ...(chats.length ? [] : [h("p.muted", say("chats_none"))]),
      ...[...groups].flatMap(([name, members]) => [
        h("h3.muted", name),
        ...members.map((chat) => this.entry(chat)),
      ]),
    );
  }

  entry(chat) {
    const title = chat.title || say("untitled");
    const name = h("button.chats-open", { dir: "auto" }, title);
    name.addEventListener("click", () => this.leave(() => openStored(chat)));
    const actions = popMenu(
      "chats-menu",
      h("summary.plain-button", { "aria-label": `${say("menu")}: ${title}` }, "⋯"),
      linkButton("rename", () => this.rename(chat, name)),
      linkButton("export_markdown", () => exportChat(chat, "md")),
      linkButton("export_json", () => exportChat(chat, "json")),
      this.sure("delete_chat", () => this.delete(chat)),
    );
    // The list of the last chats would open below the drawer's end
    actions.addEventListener(
      "toggle",
      () => actions.open && actions.lastChild.scrollIntoView({ block: "nearest" }),
    );
    const turns = h("span.muted", counted("turn", chat.path.length));
    const current = chat.id === state.chat.id ? "true" : null;
    return h(
      "div.chats-entry",
      { "data-chat": chat.id, "aria-current": current },
      name,
      turns,
      actions,
    );
  }

  // A button that requires a second press; a page in a frame may not open a dialog of the browser
  sure(key, action) {
    const again = linkButton(key, action, say(`${key}_sure`));
    return linkButton(key, ({ target }) => {
      target.replaceWith(again);
      again.focus();
    });
  }

  rename(chat, name) {
    const field = h("input", { type: "text", value: chat.title, "aria-label": say("rename") });
    const done = async () => {
      if (!field.isConnected) return;
      const title = field.value.trim() || chat.title;
      if (chat.id === state.chat.id) state.chat.title = title;
      await putChat({ ...chat, title });
      this.draw();
      redrawNow();
    };
    field.addEventListener("keydown", ({ key }) => key === "Enter" && done());
    field.addEventListener("blur", done);
    name.replaceWith(field);
    field.select();
  }

  async delete(chat) {
    if (chat.id === state.chat.id) this.forget();
    await deleteChat(chat.id);
    this.draw();
  }

  async deleteAll() {
    this.forget();
    await deleteEverything();
    this.draw();
  }

  forget() {
    newChat();
    change({ putAway: null });
  }
}

export const chatTitle = () => titleOf(state.chat);
