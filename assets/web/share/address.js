// The address bar and links: it follows the tab, a link fills the form, and Copy link creates one. A link never sends its
// question; the visitor must press Ask.

import { Trouble, attempt, copied, h, say } from "../base/dom.js";
import { notify } from "../base/server.js";
import { fillQuestion } from "../chat/box.js";
import { newChat } from "../chat/chats.js";
import { chip } from "../page/chip.js";
import { fieldsChosen, fillForm, formDefaults, formReady } from "../page/form.js";
import { onTab, screen, setTab, state } from "../page/machine.js";
import { askingOf, quoted, readLink, tabHash, tabOf } from "./link.js";

const OWN = ["recording", "step", "stop"];

// Replaces the part after "#"; with `step`, Back returns to the previous address
export function setAddress(hash, step) {
  const query = new URLSearchParams(location.search);
  OWN.forEach((name) => query.delete(name));
  const address = location.pathname + (query.size ? `?${query}` : "") + hash;
  // A host page may forbid it; everything works without links
  attempt(() => history[step ? "pushState" : "replaceState"](history.state, "", address));
}

// A button that copies the link which `linkOf` returns as {link, note}, and a line that reports the result
export function copyButton(key, linkOf) {
  const status = h("span.copy-status.muted", { role: "status" });
  const tell = (...content) => status.replaceChildren(...content);
  async function copy() {
    try {
      const { link, note } = linkOf();
      if (await copied(link)) return tell(note);
      const label = { "aria-label": say(key), onfocus: () => box.select() };
      const box = h("input.copy-box", { readonly: true, value: link, ...label });
      tell(say("link_by_hand"), box);
      box.focus();
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      tell(error.message);
    }
  }
  return [status, h("button.plain-button", { "data-action": key, onclick: copy }, say(key))];
}

export const refuseLink = (sentence) => notify("error", say("link_refused", { sentence }));

// Reads a link; after an error shows one sentence and ignores the link
function orRefuse(reading) {
  try {
    return reading();
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    refuseLink(error.message);
    setAddress("");
    return null;
  }
}

export const addressed = () => orRefuse(() => readLink(location)) || {};

// Another model, or other arithmetic, writes another text; said once it is known which one answers here
async function compareModels([target, dtype]) {
  const turns = state.turns.length;
  const here = await chip.ready;
  const same = !target || (target === here.target && (!dtype || dtype === here.dtype));
  if (same || state.waiting || state.turns.length !== turns) return;
  const named = (...words) => quoted(words.filter(Boolean).join(", "));
  const models = { there: named(target, dtype), here: named(here.target, here.dtype) };
  notify("notice", `${say("link_ready")} ${say("link_other_model", models)}`);
}

async function open(link, server) {
  if (link.answer) return screen.parts.recordings.playAnswer(link.answer);
  const asking = link.fields && orRefuse(() => askingOf(link.fields));
  if (link.fields && !asking) return;
  if (link.tab && link.tab !== state.tab) setTab(link.tab);
  if (!asking) return;
  setAddress(tabHash(state.tab)); // from here on the form has the question
  const values = { ...formDefaults(), ...asking };
  const trouble = await server.trouble(values).catch(() => null);
  if (trouble) return refuseLink(trouble.replace(/\p{C}/gu, "�"));
  const { question, "answer-prefix": prefix = null, ...fields } = values;
  fieldsChosen(Object.keys(asking));
  fillForm(fields);
  newChat();
  fillQuestion(question);
  state.linked = { question, prefix };
  notify("notice", say(state.linked.prefix ? "link_ready_fork" : "link_ready"));
  compareModels(["target", "dtype"].map((name) => link.fields.get(name)));
}

// Opens the page's link once the form exists, and every later change of the address
export function watchAddress(link, server) {
  // Recordings play the first link's answer
  formReady.then(() => open({ ...link, answer: null }, server));
  addEventListener("hashchange", () => open(addressed(), server));
  addEventListener("popstate", () => {
    const tab = tabOf(location);
    if (location.hash === tabHash(tab)) setTab(tab); // other addresses are links and stops
  });
}

onTab.push((tab, chosen) => screen.server && setAddress(tabHash(tab), chosen));
