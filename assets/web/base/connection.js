// Notices when the server has gone, or is another one, while an answer is being written; what is on screen stays.

import { addressOf, say } from "./dom.js";
import { giveBack, resume } from "../chat/asking.js";
import { redraw } from "../page/schedule.js";
import { screen } from "../page/state.js";
import { notify } from "../page/top.js";
import { fail, fetchMissed } from "../page/view.js";

const SILENT_MS = 4000;
const LOOK_MS = 2000;

// The server's functions; Gradio's own give undefined where a call failed
export function served(server) {
  return server && Object.fromEntries(Object.entries(server).map(([name, call]) => [name, async (...given) => {
    const value = await call(...given);
    if (value === undefined) throw new ServerError(say("server_silent"));
    return value;
  }]));
}

class ServerError extends Error {}

// Does what needs the server, or says that it failed, with a button that tries again
export async function orRetry(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    notify("error", error.message, () => orRetry(work));
    return undefined;
  }
}

function lose(run, sentence) {
  const { main } = run;
  run.stop();
  giveBack(run);
  if (!main) fail(run);
  screen.state.lost = run;
  notify("error", say(sentence, { n: main ? main.tokens.length : 0 }));
  Jakiro.chip.look();
  redraw();
}

// What the server says of itself; null when it cannot be reached
export async function statusOf() {
  try {
    const answer = await fetch(addressOf("status"), { cache: "no-store" });
    return await answer.json();
  } catch {
    return null;
  }
}

// `writing()` gives the run that still grows, or null; `heard` is when its last update came. A lost one is asked for when
// there is a server again: it goes on, or another server says that it has no such answer
export async function watchConnection(writing) {
  const { state } = screen;
  let known = (await statusOf())?.start;
  setInterval(async () => {
    const run = writing();
    const silent = run && performance.now() - run.heard >= SILENT_MS;
    if (!silent && !state.lost) return;
    const now = (await statusOf())?.start;
    const { lost } = state;
    if (lost && now) {
      notify(null);
      resume(lost.id, { from: lost, form: lost.form, typed: lost.question || lost.form?.question });
    } else if (run && writing() === run && !lost) {
      if (now === known) fetchMissed(run);
      else lose(run, now ? "server_restarted" : "connection_lost");
    }
    known = now || known;
  }, LOOK_MS);
}

const offline = () => !navigator.onLine || (Jakiro.chip && Jakiro.chip.lost);

// Whether a question cannot be sent now; the page says so
export function refuseOffline() {
  if (!offline()) return false;
  notify("error", say("offline_kept"));
  Jakiro.chip.look();
  return true;
}

// A question that cannot be sent stays in its box, and the page says so before anything is sent
export function guardAsking() {
  const refuse = (event) => {
    const asks = event.type === "click" ? event.target.closest?.("#ask")
      : event.key === "Enter" && !event.shiftKey && event.target.closest?.("#question");
    if (!asks || !refuseOffline()) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  addEventListener("click", refuse, true);
  addEventListener("keydown", refuse, true);
  addEventListener("offline", () => Jakiro.chip.look());
  addEventListener("online", () => Jakiro.chip.look());
}

// A question was sent: whether the server is there to answer it
export async function lookAfterAsking(run) {
  await Jakiro.chip.look();
  if (offline() && !run.finished && !run.main) lose(run, "offline_kept");
}
