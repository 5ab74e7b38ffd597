// Calls of the server, and the notice at the top of the page.

import { Trouble, addressOf, attempt, h, linkButton, refuse, say } from "./dom.js";

// The server's functions; Gradio's own give undefined where a call failed
export function served(server) {
  return (
    server &&
    Object.fromEntries(
      Object.entries(server).map(([name, call]) => [
        name,
        async (...values) => {
          const value = await call(...values);
          return value === undefined ? refuse("server_silent") : value;
        },
      ]),
    )
  );
}

// Does work that needs the server; after a failure shows a notice with a button that tries again
export async function orRetry(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    notify("error", error.message, () => orRetry(work));
    return undefined;
  }
}

// Work that is not begun again while it is under way
export function oneAtATime(work) {
  let running = null;
  return () => (running ??= orRetry(work).finally(() => (running = null)));
}

// Returns the server's status; null if it cannot be reached
const askStatus = async () => (await fetch(addressOf("status"), { cache: "no-store" })).json();
export const statusOf = () => askStatus().catch(() => null);

export const notice = h("div.notice", { role: "alert", hidden: true, id: "jk-notice" });

// Notices that the visitor has closed or used do not return after a reload
const READ = "jakiro-read";
const readNotices = () => attempt(() => JSON.parse(localStorage.getItem(READ) || "[]"), []);
export const hasRead = (text) => readNotices().includes(text);
const MOST_READ = 20;
const markRead = (text) =>
  attempt(() =>
    localStorage.setItem(READ, JSON.stringify([...readNotices(), text].slice(-MOST_READ))),
  );

// Shows one sentence at the top of the page; null clears it. With `again` it has a button with the words of `key`
export function notify(kind, text, again, key = "retry") {
  notice.hidden = !kind;
  notice.className = `notice ${kind || ""}`;
  if (!kind) return notice.replaceChildren();
  const leave = (action) => () => {
    notify(null);
    if (kind === "notice") markRead(text);
    action?.();
  };
  const close = { class: "icon-button", "aria-label": say("close"), onclick: leave() };
  return notice.replaceChildren(
    h("b", kind === "error" ? `⚠ ${say("error_word")}` : say("notice_word")),
    ` ${text} `,
    again ? linkButton(key, leave(again)) : "",
    kind === "notice" ? h("button", close, "×") : "",
  );
}
