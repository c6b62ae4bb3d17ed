// Boundaries of credentials that are built by choosing. The grammar is that of crates/types/src/boundary.rs.

import { mayUse } from "./use";

export interface BoundaryChoice {
  /** Projects to which the credential is limited; none: no limit. */
  readonly projects: readonly string[];
  readonly mayCreate: boolean;
  readonly mayConnect: boolean;
  readonly mayList: boolean;
  /** Names of tunnels; none: all. */
  readonly names: readonly string[];
  /** Regular expression for the path of a visit; empty: all. */
  readonly path: string;
}

export const NO_BOUNDARY: BoundaryChoice = { projects: [], mayCreate: true, mayConnect: true, mayList: true, names: [], path: "" };

/** The `resources` of a choice; undefined without a limit. */
export function resources(choice: BoundaryChoice): Record<string, unknown> | undefined {
  const isWhole = choice.mayCreate && choice.mayConnect && choice.mayList && choice.names.length === 0 && choice.path === "";
  if (choice.projects.length === 0 && isWhole) return undefined;
  const leaf: Record<string, unknown> = {};
  if (choice.projects.length > 0) leaf["projects"] = choice.projects;
  if (!isWhole) {
    const filters = choice.names.length === 0 ? undefined : { name: choice.names.length === 1 ? choice.names[0] : { oneof: choice.names } };
    const params = choice.path === "" ? undefined : { path: { regex: choice.path } };
    leaf["scopes"] = {
      tunnels: {
        create: mayUse(choice.mayCreate, { filters }),
        connect: mayUse(choice.mayConnect, { filters, params }),
        list: mayUse(choice.mayList, { filters }),
      },
    };
  }
  return { tunnels: leaf };
}

/** The choice in words. */
export function boundaryText(choice: BoundaryChoice, projectNames: ReadonlyMap<string, string>): string {
  const place = choice.projects.length === 0 ? "in every project" : `in ${choice.projects.map((id) => projectNames.get(id) ?? id).join(", ")}`;
  const actions = [choice.mayCreate ? "open" : "", choice.mayConnect ? "connect to" : "", choice.mayList ? "list" : ""].filter((word) => word !== "");
  if (actions.length === 0) return "It may do nothing with tunnels.";
  const names = choice.names.length === 0 ? "tunnels" : `the tunnels ${choice.names.join(", ")}`;
  const path = choice.path === "" || !choice.mayConnect ? "" : `, and visit only paths that match ${choice.path}`;
  return `It may ${actions.join(", ")} ${names} ${place}${path}, as far as its permissions allow.`;
}

/** A boundary that was written as JSON. The error names the defect; the server checks the rest. */
export function parseResources(text: string): { value: Record<string, unknown> | undefined; error?: undefined } | { error: string } {
  if (text.trim() === "") return { value: undefined };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (thrown) {
    return { error: `This is not JSON: ${thrown instanceof Error ? thrown.message : "it cannot be read"}.` };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value) || !("tunnels" in value)) {
    return { error: "A boundary is an object with the member tunnels." };
  }
  return { value: value as Record<string, unknown> };
}
