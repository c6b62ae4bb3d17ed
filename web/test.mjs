// Bundles the tests, because node does not read TypeScript, and runs them with node's test runner.

import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const TESTS = fileURLToPath(new URL("./test/", import.meta.url));

const out = await mkdtemp(join(tmpdir(), "svc-dashboard-test-"));
try {
  const files = (await readdir(TESTS)).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: files.map((name) => join(TESTS, name)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  });
  const bundles = files.map((name) => join(out, name.replace(/\.ts$/, ".mjs")));
  const run = spawnSync(process.execPath, ["--test", "--test-reporter=dot", ...bundles], { stdio: "inherit" });
  process.exitCode = run.status ?? 1;
} finally {
  await rm(out, { recursive: true, force: true });
}
