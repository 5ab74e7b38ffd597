// The connection while an answer is written: a silent one is explained, text on screen stays, and a hidden tab holds none.

import { addressOf, say } from "../base/dom.js";
import { notify, statusOf } from "../base/server.js";
import { resume } from "../chat/asking.js";
import { chip } from "./chip.js";
import { fetchMissed, lose, redraw, screen, state } from "./machine.js";

const SILENT_MS = 4000;
const LOOK_MS = 2000;

// The answer that still grows
const writing = () => state.open.values().next().value;

// A lost answer is requested when there is a server again: it continues, or another server has no such answer
export async function watchConnection() {
  let known = (await statusOf())?.start;

  async function look() {
    const run = writing();
    if (document.hidden) {
      if (run) putAside(run);
      return;
    }
    const silent = run && performance.now() - run.heard >= SILENT_MS;
    if (!silent && !state.lost) return;
    // Even a short request got no response
    const late = setTimeout(() => {
      if (!run || run.finished || run.ticks) return;
      run.waiting = say("held_up");
      redraw();
    }, SILENT_MS);
    const now = (await statusOf())?.start;
    clearTimeout(late);
    const { lost } = state;
    if (lost && now) {
      notify(null);
      state.lost = null;
      resume(Object.assign(lost, { typed: lost.question }));
    } else if (run && writing() === run && !lost) {
      if (now && now === (known || now)) fetchMissed(run);
      else {
        lose(run, now ? "server_restarted" : "connection_lost");
        chip.look();
      }
    }
    known = now || known;
  }

  const again = () => setTimeout(() => look().finally(again), LOOK_MS);
  again();
  document.addEventListener("visibilitychange", () => {
    const run = writing();
    if (run) (document.hidden ? putAside : comeBack)(run);
  });
}

// A browser has six connections to a server; a hidden tab releases its own. If the server does not have the answer yet, the
// request is repeated
async function putAside(run) {
  if (run.aside) return;
  run.aside = screen.server.aside(run.id).catch(() => false);
  if (!(await run.aside)) run.aside = null;
}

async function comeBack(run) {
  const aside = await run.aside;
  run.aside = null;
  if (!aside || run.finished) return;
  resume(run);
}

// A closed tab does not return for its answer
addEventListener("pagehide", (event) => {
  const last = writing() ?? state.turns.at(-1);
  if (!event.persisted && screen.server && last) navigator.sendBeacon(addressOf("left"), last.id);
});
