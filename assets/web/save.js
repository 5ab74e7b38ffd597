// Saving: the trace as json, one row per candidate as csv, a replay page that works from disk, and pictures. All of it
// is made in the browser from what it shows; nothing is sent anywhere.
(() => {
  const { h, say, nameOf, stateOf, traceOf } = Jakiro;

  function download(name, content, type) {
    const link = h("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })),
      download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // jakiro-<first three words>-seed7-<date>
  function fileName(run, ending) {
    const words = run.question.toLowerCase().match(/[\p{L}\p{N}]+/gu) || ["answer"];
    const { header } = run.main;
    return `jakiro-${words.slice(0, 3).join("-").slice(0, 60)}-seed${header.sampling.seed}-${String(header.created).slice(0, 10)}.${ending}`;
  }

  function recordingOf(run) {
    const traces = Object.fromEntries(Object.entries(run.lanes).map(([method, lane]) => [method, traceOf(lane)]));
    return { title: run.title || run.question, why: "", traces };
  }

  const asJson = (run) => JSON.stringify(recordingOf(run));

  // Quoted where needed; a cell that a table program would take for a formula starts with an apostrophe
  function cell(value) {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }

  const COLUMNS = ["method", "step", "node", "parent", "depth", "pass", "token_id", "token", "proposer", "score", "draft_prob",
    "target_prob", "state", "target_choice"];

  function asCsv(run) {
    const rows = [COLUMNS];
    for (const lane of Object.values(run.lanes)) {
      for (const step of lane.steps) {
        step.nodes.forEach((node, i) => i && rows.push([lane.method, step.index, i, node.parent, node.depth, node.draft_pass,
          node.token_id, nameOf(lane, node.token_id, node.piece), node.proposer, node.score, node.draft_prob, node.target_prob,
          stateOf(step, i), node.target_choice]));
      }
    }
    return rows.map((row) => row.map(cell).join(",")).join("\r\n");
  }

  // The page's own style and scripts with the recording inside: one file, no network
  function asReplay(run) {
    const code = document.getElementById("jakiro-code").textContent;
    const style = document.getElementById("jakiro-style").textContent;
    const data = asJson(run).replace(/</g, "\\u003c").replace(/\u2028|\u2029/g, (sign) => `\\u${sign.charCodeAt(0).toString(16)}`);
    const dark = document.body.classList.contains("dark") ? ' class="dark"' : "";
    const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:";
    return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">`
      + `<meta http-equiv="Content-Security-Policy" content="${policy}"><title>Jakiro</title>`
      + `<style id="jakiro-style">${style}</style></head><body${dark}><div id="replay"><div class="jk-view"></div></div>`
      + `<script type="application/json" id="jakiro-recording">${data}</scr` + `ipt><script id="jakiro-code">${code}</scr`
      + `ipt><script>Jakiro.openReplay();</scr` + `ipt></body></html>`;
  }

  // Called by a saved replay page
  function openReplay() {
    const recording = JSON.parse(document.getElementById("jakiro-recording").textContent);
    document.body.classList.add("replay");
    Jakiro.mountView(document.getElementById("replay"), {}, null, null);
    Jakiro.showRecording("replay", recording, { playNow: false });
  }

  const SAVERS = {
    save_json: (run) => download(fileName(run, "json"), asJson(run), "application/json"),
    save_csv: (run) => download(fileName(run, "csv"), asCsv(run), "text/csv"),
    save_html: (run) => download(fileName(run, "html"), asReplay(run), "text/html"),
    save_tree_png: async (run, state) => {
      const canvas = await Jakiro.treePicture(run, state.index);
      if (canvas) canvas.toBlob((blob) => download(fileName(run, "tree.png"), blob));
    },
    save_png: (run) => Jakiro.resultPicture(run).toBlob((blob) => download(fileName(run, "png"), blob)),
  };

  function saveMenu(state) {
    const menu = h("details", { class: "save-menu" }, h("summary", { class: "plain-button" }, say("save")),
      h("div", { class: "save-list" }, h("p", { class: "muted" }, say("save_warning")),
        Object.entries(SAVERS).map(([key, save]) => h("button", { class: "plain-button", "data-save": key, onclick: () => {
          if (state.run && state.run.main) save(state.run, state);
          menu.open = false;
        } }, say(key)))));
    return menu;
  }

  Object.assign(Jakiro, { saveMenu, asJson, asCsv, asReplay, openReplay, fileName });
})();
