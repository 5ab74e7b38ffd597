// The static site: the page's own panes without a server. Files are read as scripts, because browsers let no page that was opened
// from disk fetch its neighbours; each holds one text, compressed.

const waiting = new Map();
// Called by the files of the site
window.jakiroFile = (name, packed) => waiting.get(name)(packed);

// The text of one of the site's files
async function textOf(name) {
  const packed = await new Promise((resolve, reject) => {
    waiting.set(name, resolve);
    const script = document.createElement("script");
    script.src = `files/${name}.js`;
    script.onerror = () => reject(new Jakiro.Trouble(`The file files/${name}.js is missing.`));
    document.head.append(script);
  });
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const TABS = ["watch", "race", "lesson", "recordings", "benchmark"];

function openSite(names) {
  const [view, lesson, benchmark] = ["view", "lesson", "benchmark"].map((id) =>
    document.getElementById(id),
  );
  Jakiro.mountReplayTop(view.parentElement, TABS);
  document.querySelector(".jk-top").append(Jakiro.notice);
  const { recordings } = Jakiro.mountView(view, {}, null, null);
  Object.assign(recordings, {
    known: names,
    async load(name) {
      if (!this.loaded.has(name)) {
        const text = await textOf(name);
        this.loaded.set(name, { ...Jakiro.readTraceFile(text), why: JSON.parse(text).why, text });
      }
      return this.loaded.get(name);
    },
  });
  Jakiro.mountLesson(lesson, { lesson_recordings: () => textOf("lesson") });
  Jakiro.mountBenchmark(benchmark, {}, null, {
    benchmark_recorded: () => textOf("benchmark"),
    benchmark_board: () => textOf("leaderboard"),
  });
  Jakiro.onTab.push((tab, chosen) => Jakiro.setAddress(Jakiro.tabHash(tab), chosen));
  const link = Jakiro.addressed();
  recordings.first({ recording: link.recording, step: link.step });
  const follow = () =>
    Jakiro.linkedStop(location) === null && Jakiro.setTab(Jakiro.tabOf(location));
  addEventListener("popstate", follow);
  Jakiro.setTab(Jakiro.linkedStop(location) === null ? Jakiro.tabOf(location) : "lesson");
}
