// Chats in the browser's own database (IndexedDB): chats, their turns as text, and the traces of answers, which are large and may be
// dropped. Without a database (a private window, a full disk, a host that switched it off) everything is kept in memory.

import { say } from "../base/dom.js";
import { notify } from "../base/server.js";
import { openDB } from "../vendor/idb.js";

export const VERSION = 1; // of the stored form
const MOST_TRACES = 500;

// The same functions of a database that stores nothing on disk
class MemoryDatabase {
  constructor() {
    this.stores = { chats: new Map(), turns: new Map(), traces: new Map() };
  }

  get = async (store, id) => this.stores[store].get(id);
  getAll = async (store) => [...this.stores[store].values()];
  getAllFromIndex = async (store, name, value) =>
    (await this.getAll(store)).filter((record) => record[name] === value);
  getAllKeysFromIndex = async (store) => [...this.stores[store].keys()];
  put = async (store, record) => this.stores[store].set(record.id, structuredClone(record));
  delete = async (store, id) => this.stores[store].delete(id);
  clear = async (store) => this.stores[store].clear();
}

function upgrade(database) {
  database.createObjectStore("chats", { keyPath: "id" });
  database.createObjectStore("turns", { keyPath: "id" }).createIndex("chat", "chat");
  const traces = database.createObjectStore("traces", { keyPath: "id" });
  traces.createIndex("chat", "chat");
  traces.createIndex("saved", "saved");
}

let database = null;
let onDisk = false;
const notices = new Set();

// Whether this page stores chats on disk
export const storeOnDisk = (allowed) => (onDisk = allowed);

function notifyOnce(key) {
  if (!notices.has(key)) notify("notice", say(key));
  notices.add(key);
}

function useMemory() {
  notifyOnce("chats_in_memory");
  return new MemoryDatabase();
}

const opened = () =>
  (database ??= onDisk ? openOnDisk().catch(useMemory) : Promise.resolve(new MemoryDatabase()));

// A function of its own, since a browser that forbids databases throws at once
const openOnDisk = async () => openDB("jakiro-chats", VERSION, { upgrade });

async function dropTraces(count) {
  const base = await opened();
  const oldest = (await base.getAllKeysFromIndex("traces", "saved")).slice(0, count);
  await Promise.all(oldest.map((id) => base.delete("traces", id)));
  if (oldest.length) notifyOnce("traces_dropped");
  return oldest.length;
}

// Writes one record; a full disk drops the oldest traces, and then continues in memory
async function put(store, record) {
  const base = await opened();
  try {
    await base.put(store, record);
  } catch {
    if (await dropTraces(20).catch(() => 0)) return put(store, record);
    if (store === "traces") return notifyOnce("traces_dropped");
    database = Promise.resolve(useMemory());
    await put(store, record);
  }
  return undefined;
}

// Writes of one visit happen in the order in which they were requested
let writing = Promise.resolve();
const inOrder = (work) => (writing = writing.then(work, work));

export const storedChats = async () => (await opened()).getAll("chats");
export const storedTurns = async (chat) => (await opened()).getAllFromIndex("turns", "chat", chat);
export const storedTrace = async (id) => (await (await opened()).get("traces", id))?.traces;
export const whenStored = () => writing;

export const putChat = (record) => inOrder(() => put("chats", { version: VERSION, ...record }));
export const putTurn = (record) => inOrder(() => put("turns", record));
export const putTrace = (id, chat, traces) =>
  inOrder(async () => {
    await put("traces", { id, chat, traces, saved: Date.now() });
    const kept = (await (await opened()).getAllKeysFromIndex("traces", "saved")).length;
    if (kept > MOST_TRACES) await dropTraces(kept - MOST_TRACES);
  });

const removeTurns = (base, ids) =>
  Promise.all(ids.flatMap((id) => [base.delete("turns", id), base.delete("traces", id)]));

export const deleteTurns = (ids) => inOrder(async () => removeTurns(await opened(), ids));

export const deleteChat = (id) =>
  inOrder(async () => {
    const base = await opened();
    const turns = await base.getAllFromIndex("turns", "chat", id);
    await base.delete("chats", id);
    await removeTurns(
      base,
      turns.map((turn) => turn.id),
    );
  });

export const deleteEverything = () =>
  inOrder(async () => {
    const base = await opened();
    await Promise.all(["chats", "turns", "traces"].map((store) => base.clear(store)));
  });
