import { request } from "../api/client";
import { type Resource, useResource } from "../api/resource";
import { rangeOf, type Traffic, trafficQuery } from "./traffic";

/** Traffic is reported each ten seconds, and a minute is complete after it. */
const EVERY_MS = 15_000;

/** The time series of a project, or of its tunnels, which is loaded again automatically. */
export function useTraffic(project: string, range: string, by: "project" | "tunnel", tunnel?: string): Resource<Traffic> {
  return useResource(
    `project/${project}/traffic/${range}/${by}/${tunnel ?? ""}`,
    async (signal) => {
      const query = { ...trafficQuery(rangeOf(range), Date.now()), ...(tunnel === undefined ? { by } : { tunnel }) };
      const path = { project_id: project };
      return (await request("get", "/api/projects/tunnels/{project_id}/traffic", { path, query, signal })) as Traffic;
    },
    { every: EVERY_MS },
  );
}
