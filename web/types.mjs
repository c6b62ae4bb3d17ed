// Generates the types of the API and the table of permissions from the committed OpenAPI documents.
// The output is src/generated, which is not committed.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import openapiTypes, { astToString } from "openapi-typescript";

const DOCUMENTS = new URL("../openapi/", import.meta.url);
const GENERATED = new URL("./src/generated/", import.meta.url);

export async function generate() {
  await mkdir(GENERATED, { recursive: true });
  const documents = {};
  for (const [name, file] of [["control", "control-plane.json"], ["engine", "engine.json"]]) {
    const document = JSON.parse(await readFile(new URL(file, DOCUMENTS), "utf8"));
    documents[name] = document;
    const types = astToString(await openapiTypes(document, { silent: true, emptyObjectsUnknown: true }));
    await write(`${name}.ts`, types);
  }
  await write("permissions.ts", permissions(documents.control));
}

/** The permissions with their descriptions, and the combinations for common work. */
function permissions(document) {
  const all = Object.values(document["x-svc-permissions"] ?? {});
  const table = all.map(({ name, description }) => ({ name, description }));
  const order = document.components.schemas.Permission.enum ?? [];
  table.sort((one, other) => order.indexOf(one.name) - order.indexOf(other.name));
  const uses = document["x-svc-use-case-permissions"] ?? {};
  return [
    "export interface PermissionText { readonly name: string; readonly description: string }",
    `export const PERMISSIONS: readonly PermissionText[] = ${JSON.stringify(table, null, 2)};`,
    `export const USE_CASES: unknown = ${JSON.stringify(uses, null, 2)};`,
    "",
  ].join("\n");
}

/** Writes only a change, so that a watcher or a build after it does not start for nothing. */
async function write(name, text) {
  const path = new URL(name, GENERATED);
  const old = await readFile(path, "utf8").catch(() => undefined);
  if (old !== text) await writeFile(path, text);
}

if (process.argv[1] === new URL(import.meta.url).pathname) await generate();
