// Data of many views: the person, workspaces, projects.

import { call, type Control } from "./client";
import { rememberPerson } from "./connection";
import type { ApiError } from "./problem";
import { type Resource, ROLES_KEY, useResource } from "./resource";
import { isRole, may, type Permission, type Role } from "./roles";

export type Project = Control<"Project">;
export type Workspace = Control<"Workspace">;

/** Page size of lists that are shown whole. */
export const FULL_PAGE = 100;
/** Most projects that are loaded for the switcher and the palette. */
const MAX_PROJECT_PAGES = 10;

/** Roles are loaded again after this time, so that a lost role is no longer offered. */
const ROLE_MS = 15_000;
/** A project is loaded again after this time, so that its views show a suspension. */
const PROJECT_MS = 15_000;

export function useUser(): Resource<Control<"User">> {
  return useResource("user", async (signal) => {
    const user = await call("get", "/api/user", { signal });
    rememberPerson(user.id);
    return user;
  });
}

export function useWorkspaces(): Resource<readonly Workspace[]> {
  return useResource(ROLES_KEY, async (signal) => (await call("get", "/api/workspaces", { signal })).workspaces, { every: ROLE_MS });
}

export function useProjects(): Resource<readonly Project[]> {
  return useResource("projects", async (signal) => {
    const projects: Project[] = [];
    for (let page = 1; page <= MAX_PROJECT_PAGES; page += 1) {
      const list = await call("get", "/api/projects/tunnels", { query: { page, pageSize: FULL_PAGE }, signal });
      projects.push(...list.projects);
      if (page >= list.totalPages) break;
    }
    return projects;
  });
}

const loadListeners = new Set<(project: Project) => void>();

/** Calls `listener` with each project that a view loads, until the returned function is called. */
export function onProjectLoad(listener: (project: Project) => void): () => void {
  loadListeners.add(listener);
  return () => loadListeners.delete(listener);
}

export function useProject(id: string): Resource<Project> {
  const load = async (signal: AbortSignal) => {
    const project = await call("get", "/api/projects/tunnels/{project_id}", { path: { project_id: id }, signal });
    for (const listener of [...loadListeners]) listener(project);
    return project;
  };
  return useResource(`project/${id}`, load, { every: PROJECT_MS });
}

export interface Rights {
  readonly role: Role | undefined;
  readonly may: (permission: Permission) => boolean;
  readonly error: ApiError | undefined;
}

/** The rights of the person in a workspace, and in its projects. */
export function useRights(workspace: string | undefined): Rights {
  const { data, error } = useWorkspaces();
  const membership = data?.find((one) => one.id === workspace)?.membership;
  const role = membership !== undefined && membership.status === "active" && isRole(membership.role) ? membership.role : undefined;
  return { role, may: (permission) => may(role, permission), error };
}

export interface SettingsResource extends Resource<Control<"ProjectSettings">> {
  /** True if the role does not show them. */
  readonly isHidden: boolean;
}

/** The rules of a project for its visitors. Only roles that may change them may read them. */
export function useSettings(project: string): SettingsResource {
  const rights = useRights(useProject(project).data?.workspaceId);
  const mayRead = rights.may("account.projects.read-write");
  const settings = useResource(mayRead ? `project/${project}/settings` : undefined, (signal) =>
    call("get", "/api/projects/tunnels/{project_id}/settings", { path: { project_id: project }, signal }),
  );
  return { ...settings, isHidden: rights.role !== undefined && !mayRead };
}
