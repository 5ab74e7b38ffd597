// Notices when the server has gone, or is another one, while an answer is being written; what is on screen stays.

import { notify } from "../base/notice.js";
import { statusOf } from "../base/server.js";
import { resume } from "../chat/asking.js";
import { chip } from "./chip.js";
import { fetchMissed, lose, state } from "./machine.js";

const SILENT_MS = 4000;
const LOOK_MS = 2000;

// `writing()` gives the run that still grows, or null; `heard` is when its last update came. A lost one is asked for when
// there is a server again: it goes on, or another server says that it has no such answer
export async function watchConnection(writing) {
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
      else {
        lose(run, now ? "server_restarted" : "connection_lost");
        chip.look();
      }
    }
    known = now || known;
  }, LOOK_MS);
}
