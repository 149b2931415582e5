// Builds the page into the package: `node build.mjs` (or `make web`). With --check it only checks that the shipped page is up to date.
import { build } from "esbuild";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const page = join(here, "../src/nearkin/serve/atlas/page");

// regl compiles its draw calls with Function(), for which the page's policy would have to allow eval to everything. Instead they become
// script elements with the page's nonce, which nothing that is injected knows.
const COMPILED = "Function.apply(null, linkedNames.concat(src))";
const WITH_NONCE = `
var pageNonce = document.currentScript && document.currentScript.nonce;
function compiledWithNonce(names, body) {
  var script = document.createElement("script");
  script.nonce = pageNonce;
  script.text = "window.nearkinCompiled = function (" + names.join() + ") {" + body + "\\n}";
  document.head.append(script);
  script.remove();
  var made = window.nearkinCompiled;
  delete window.nearkinCompiled;
  return made;
}
`;
const withoutEval = {
  name: "without-eval",
  setup(build) {
    build.onLoad({ filter: /[\\/]regl[\\/]dist[\\/]regl\.js$/ }, ({ path }) => {
      const text = readFileSync(path, "utf8");
      if (text.split(COMPILED).length !== 2) throw new Error(`${path} compiles in another way than expected`);
      return { contents: WITH_NONCE + text.replace(COMPILED, "compiledWithNonce(linkedNames, src)") };
    });
  },
};

const made = await build({
  absWorkingDir: here,
  entryPoints: { explorer: "src/main.ts", style: "src/explorer.css" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
  metafile: true,
  write: false,
  outdir: page,
  plugins: [withoutEval],
});

const html = readFileSync(join(here, "src/index.html"), "utf8").split("\n").map((line) => line.trim()).join("");
const files = new Map([["index.html", Buffer.from(html)]]);
for (const output of made.outputFiles) {
  files.set(output.path.endsWith(".css") ? "explorer.css" : "explorer.js", Buffer.from(output.contents));
}
files.set("LICENSES.txt", Buffer.from(licenses(Object.keys(made.metafile.inputs))));

if (process.argv.includes("--check")) {
  const stale = [...files].filter(([name, content]) => !existsSync(join(page, name)) || !readFileSync(join(page, name)).equals(content));
  if (stale.length) console.error(`the shipped page is out of date: ${stale.map(([name]) => name).join(", ")}; run \`make web\``);
  process.exit(stale.length ? 1 : 0);
}
mkdirSync(page, { recursive: true });
for (const [name, content] of files) writeFileSync(join(page, name), content);
console.log([...files].map(([name, content]) => `${name} ${(content.length / 1000).toFixed(1)} kB`).join(", "));

/** The license of every package in the bundle, as its license requires. */
function licenses(inputs) {
  const names = new Set(inputs.map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean));
  return [...names].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = ["LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE"].map((one) => join(folder, one)).find(existsSync);
    const text = file ? readFileSync(file, "utf8").trim() : `License: ${about.license}`;
    return `${name} ${about.version}\n\n${text}\n`;
  }).join("\n----\n\n");
}
