// Builds the dashboard: `npm run build -- --out DIR`. The output is index.html, which names the
// other files, and those below `assets/`, whose names contain a hash of their content.

import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { brotliCompressSync, constants } from "node:zlib";
import { build } from "esbuild";
import { generate } from "./types.mjs";

/** The path at which the platform serves the files. */
const PUBLIC_PATH = "/assets/";
/** Limit of everything but graphs, compressed: a page on a slow line is usable within seconds. */
const BUDGET_BYTES = 200 * 1024;
/** Chunks that load only with a graph, and are outside the budget. */
const LATE = /^graph-/;

const { values } = parseArgs({ options: { out: { type: "string", default: "dist" } } });
const out = resolve(values.out);
const root = fileURLToPath(new URL(".", import.meta.url));

await generate();
const assets = join(out, "assets");
await rm(assets, { recursive: true, force: true });
await mkdir(assets, { recursive: true });
const result = await build({
  absWorkingDir: root,
  entryPoints: { app: "src/main.tsx", style: "src/style/index.css" },
  outdir: assets,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  publicPath: PUBLIC_PATH,
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022", "chrome109", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});

const files = Object.entries(result.metafile.outputs).map(([path, output]) => ({
  name: basename(path),
  entry: output.entryPoint ?? "",
}));
const named = (entry) => files.find((file) => file.entry === entry)?.name ?? fail(`the build has no ${entry}`);
const page = (await readFile(join(root, "src/index.html"), "utf8"))
  .replace("{{style}}", PUBLIC_PATH + named("src/style/index.css"))
  .replace("{{app}}", PUBLIC_PATH + named("src/main.tsx"));
await writeFile(join(out, "index.html"), page);
const licences = await licenceTexts();
const hash = createHash("sha256").update(licences).digest("hex").slice(0, 8).toUpperCase();
await writeFile(join(assets, `licences-${hash}.txt`), licences);

let first = compressed(Buffer.from(page));
let late = 0;
for (const { name } of files) {
  const size = compressed(await readFile(join(assets, name)));
  if (LATE.test(name)) late += size;
  else first += size;
}
console.log(`dashboard: ${kib(first)} compressed, and ${kib(late)} with graphs (limit ${kib(BUDGET_BYTES)})`);
if (first > BUDGET_BYTES) fail("the dashboard is larger than its limit");

function compressed(bytes) {
  return brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length;
}

function kib(bytes) {
  return `${(bytes / 1024).toFixed(1)} KiB`;
}

/** The licences of the packages that are part of the output. */
async function licenceTexts() {
  const parts = [];
  for (const name of ["preact", "uplot"]) {
    parts.push(`${name}\n\n${await readFile(join(root, "node_modules", name, "LICENSE"), "utf8")}`);
  }
  return parts.join("\n\n");
}

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}
