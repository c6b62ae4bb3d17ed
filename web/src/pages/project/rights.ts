import { type Rights, useProject, useRights } from "../../api/data";

/** The rights of the person in the project's workspace. */
export function useProjectRights(project: string): Rights {
  return useRights(useProject(project).data?.workspaceId);
}
