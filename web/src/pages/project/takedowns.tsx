// Takedowns by operators, for the members of a project.

import { call, type Control } from "../../api/client";
import { useResource } from "../../api/resource";
import { Time } from "../../ui/parts";

type Takedown = Control<"Takedown">;

/** Notes about the taken down names of a project, or about one of them. */
export function Takedowns({ project, hostname }: { project: string; hostname?: string | undefined }) {
  const list = useResource(`project/${project}/takedowns`, (signal) => call("get", "/api/projects/tunnels/{project_id}/takedowns", { path: { project_id: project }, signal }), { every: 30_000 });
  const seen = takedownsOf(list.data?.takedowns ?? [], hostname);
  if (seen.length === 0) return null;
  return (
    <div class="note is-bad" role="alert">
      {seen.map((one) => (
        <p key={one.hostname}>
          An operator took down <code>{one.hostname}</code> <Time at={one.createdAt} />: {one.reason}
        </p>
      ))}
    </div>
  );
}

/** The takedowns of one host name, or all of them. */
export function takedownsOf(takedowns: readonly Takedown[], hostname: string | undefined): readonly Takedown[] {
  return hostname === undefined ? takedowns : takedowns.filter((one) => one.hostname === hostname);
}
