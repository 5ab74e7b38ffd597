// Brings Plotly after the page's first paint: from the server, or in a saved page from the page itself. Compressed in both,
// so that one way unpacks it and a saved page carries it as it came.
(() => {
  const { say } = Jakiro;

  const PACKED_ID = "jakiro-plotly";
  const STEP = 0x8000; // bytes made into text at once
  const waiting = [];
  let bytes = null; // promise of the compressed library
  let state = "none"; // then "loading", "ready" or "failed"

  const fromBase64 = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));

  function toBase64(array) {
    const parts = [];
    for (let i = 0; i < array.length; i += STEP) parts.push(String.fromCharCode(...array.subarray(i, i + STEP)));
    return btoa(parts.join(""));
  }

  async function fetched() {
    const root = (window.gradio_config && window.gradio_config.root) || ".";
    const answer = await fetch(`${root}/${Jakiro.plotlyFile}`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  }

  function packed() {
    const here = document.getElementById(PACKED_ID);
    bytes = bytes || (here ? Promise.resolve(fromBase64(here.textContent)) : fetched());
    return bytes;
  }

  async function unpack() {
    const stream = new Blob([await packed()]).stream().pipeThrough(new DecompressionStream("gzip"));
    const code = document.createElement("script");
    code.textContent = await new Response(stream).text();
    document.head.append(code);
    code.remove();
    if (!window.Plotly) throw new Error("no Plotly");
  }

  // Once anything is on screen, at a quiet moment
  function load() {
    if (state !== "none") return;
    state = "loading";
    const later = window.requestIdleCallback || ((work) => setTimeout(work, 200));
    requestAnimationFrame(() => later(async () => {
      try {
        await unpack();
        state = "ready";
      } catch {
        bytes = null;
        state = "failed";
      }
      waiting.splice(0).forEach((drawn) => drawn());
    }, { timeout: 2000 }));
  }

  // Whether plots can be drawn; if not yet, `then` is called when it is known
  function ready(then) {
    if (state === "none" || state === "loading") {
      if (!waiting.includes(then)) waiting.push(then);
      load();
    }
    return state === "ready";
  }

  // The element that a saved page carries the library in; without a network there is none, and its plots are tables
  async function asElement() {
    try {
      return `<script type="text/plain" id="${PACKED_ID}">${toBase64(await packed())}</scr` + "ipt>";
    } catch {
      Jakiro.notify("notice", say("plot_not_packed"));
      return "";
    }
  }

  Object.assign(Jakiro, { plotly: { ready, failed: () => state === "failed", asElement } });
})();
