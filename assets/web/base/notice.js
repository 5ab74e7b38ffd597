// The one place where errors are shown.

import { h, say } from "./dom.js";

export const notice = h("div", { class: "notice", role: "alert", hidden: true, id: "jk-notice" });

// One sentence above the question row, with a button where `again` tries it anew; null clears it
export function notify(kind, text, again) {
  notice.hidden = !kind;
  notice.className = `notice ${kind || ""}`;
  if (!kind) return notice.replaceChildren();
  const retry = again && h("button", { class: "link-button", "data-action": "retry", onclick: () => {
    notify(null);
    again();
  } }, say("retry"));
  return notice.replaceChildren(h("b", null, kind === "error" ? `⚠ ${say("error_word")}` : say("notice_word")), ` ${text} `, retry || "");
}
