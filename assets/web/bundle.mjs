// Joins the modules and style sheets of this folder into the files of assets/bundle, which the server sends:
// `npm run build`. `npm run check` compares them with the committed ones.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const WEB = dirname(fileURLToPath(import.meta.url));
const OUT = resolve(WEB, "../bundle");
// Folders that are sent separately, after the page's own
const SEPARATE = ["lesson", "benchmark"];
// In the order of their rules
const STYLES = [
  "base/base",
  "page/page",
  "watch/answer",
  "plots/plots",
  "tree/tree",
  "race/race",
  "chat/chat",
  "share/share",
  "page/narrow",
  "base/hall",
  "base/access",
].map((name) => `${name}.css`);

const files = readdirSync(WEB, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => relative(WEB, join(entry.parentPath, entry.name)).replaceAll("\\", "/"))
  .sort();
const scriptsOf = (group) =>
  files.filter(
    (file) =>
      file.endsWith(".js") &&
      (group === "page" ? !SEPARATE.includes(file.split("/")[0]) : file.startsWith(`${group}/`)),
  );

// Imports from the page's own modules read `window.Jakiro`, where the page's script has put them
const fromPage = (group) => ({
  name: "from-page",
  setup(build) {
    if (group === "page") return;
    build.onResolve({ filter: /^\.\.?\// }, ({ path, resolveDir }) =>
      relative(WEB, resolve(resolveDir, path)).split(/[/\\]/)[0] === group
        ? null
        : { path: "page", namespace: "page" },
    );
    build.onLoad({ filter: /./, namespace: "page" }, () => ({
      contents: "module.exports = window.Jakiro;",
    }));
  },
});

const shared = {
  bundle: true,
  write: false,
  charset: "utf8",
  legalComments: "none",
  minifyWhitespace: true,
  minifyIdentifiers: true,
  metafile: true,
  absWorkingDir: WEB,
};

async function bundle(contents, loader, options) {
  const stdin = { contents, loader, resolveDir: WEB, sourcefile: `entry.${loader}` };
  const { outputFiles, metafile } = await esbuild.build({ ...shared, stdin, ...options });
  const inputs = Object.keys(metafile.inputs).filter((name) => files.includes(name));
  return { text: outputFiles[0].text, inputs };
}

function script(group) {
  const names = scriptsOf(group);
  const imports = names.map((name, i) => `import * as m${i} from "./${name}";`);
  const all = names.map((_, i) => `m${i}`).join(", ");
  const options = { format: "iife", target: "es2022", plugins: [fromPage(group)] };
  return bundle(`${imports.join("\n")}\nObject.assign(Jakiro, ${all});`, "js", options);
}

const style = (names) => bundle(names.map((name) => `@import "./${name}";`).join("\n"), "css", {});

// Of every file here, so that a test without Node notices a bundle that is out of date
function hashOfSources() {
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file}\0`).update(readFileSync(join(WEB, file)));
  return hash.digest("hex");
}

const built = {
  "page.js": await script("page"),
  "page.css": await style(STYLES),
};
for (const group of SEPARATE) {
  built[`${group}.js`] = await script(group);
  built[`${group}.css`] = await style([`${group}/${group}.css`]);
}
const contents = Object.fromEntries(
  Object.entries(built).map(([name, { inputs }]) => [name, inputs.sort()]),
);
const manifest = { sources: hashOfSources(), contents };
const texts = {
  ...Object.fromEntries(Object.entries(built).map(([name, { text }]) => [name, text])),
  "manifest.json": `${JSON.stringify(manifest, null, 2)}\n`,
};
if (process.argv.includes("--check")) {
  const differs = Object.keys(texts).filter((name) => {
    try {
      return readFileSync(join(OUT, name), "utf8") !== texts[name];
    } catch {
      return true;
    }
  });
  if (differs.length) {
    console.error(`assets/bundle is out of date (${differs.join(", ")}); run npm run build.`);
    process.exit(1);
  }
} else {
  mkdirSync(OUT, { recursive: true });
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(OUT, name), text);
}
