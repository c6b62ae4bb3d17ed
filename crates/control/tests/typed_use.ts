// A typical program that uses the types which openapi-typescript generates from the OpenAPI
// documents. It is compiled, not run.
import type { components, operations, paths } from "./control-plane.js";
import type { paths as enginePaths } from "./engine.js";

type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
type Created = Json<operations["create_tunnels_project"]["responses"][201]>;
type Listed = Json<paths["/api/projects/tunnels"]["get"]["responses"][200]>;
type Tunnels = Json<enginePaths["/api/tunnels"]["get"]["responses"][200]>;

const names = (list: Listed): string[] => list.projects.map((project) => project.name);
const newest = (list: Listed): Created | undefined => list.projects.at(-1);
const order: components["schemas"]["CreateProject"] = {
  name: "staging",
  plan: "basic",
  provider: "other",
  region: "local",
  creationFingerprint: "qk6nq1v0r1cY3yW5c1mVb3x2D8r4m2X0hA7uXjvQdZk",
  idempotencyKey: "0192f0c1-7c1e-7b43-9c59-6f6d0c6f7a11",
};
// @ts-expect-error: a caller cannot choose the billing mode (CP-4c).
const refused: typeof order = { ...order, billingMode: "invoice" };
const online = (tunnels: Tunnels): number => tunnels.length;

export { names, newest, online, refused };
