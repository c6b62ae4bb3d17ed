// The browser sessions of a user, for operators.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { Confirm } from "../../ui/dialog";
import { Button, Loaded, Pill, Time } from "../../ui/parts";
import { Table } from "../../ui/table";

export function UserSessions({ user }: { user: string }) {
  const key = `installation/users/sessions/${user}`;
  const [ended, setEnded] = useState<Control<"BrowserSession"> | undefined>(undefined);
  const list = useResource(key, (signal) => call("get", "/api/operator/users/{user_id}/sessions", { path: { user_id: user }, signal }), { every: 30_000 });
  return (
    <section>
      <h3>Sessions</h3>
      <p class="small quiet">The end of a session also ends all sessions of this user at tunnels.</p>
      <Loaded of={list} rows={2}>
        {({ sessions }) =>
          sessions.length === 0 ? (
            <p class="quiet">This user is not signed in.</p>
          ) : (
            <Table columns={["Browser", "Address", "Signed in", "Last used"]} hasActions>
              {sessions.map((one) => (
                <tr key={one.id}>
                  <td>
                    {one.userAgent ?? <span class="quiet">unknown</span>} {one.current && <Pill>this browser</Pill>}
                  </td>
                  <td>{one.ip ?? <span class="quiet">unknown</span>}</td>
                  <td>
                    <Time at={one.createdAt} />
                  </td>
                  <td>
                    <Time at={one.lastSeenAt} />
                  </td>
                  <td class="end">
                    <Button look="bare" onClick={() => setEnded(one)}>
                      End
                    </Button>
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
      {ended !== undefined && (
        <Confirm
          title="End the session"
          verb="End the session"
          done="The session has ended."
          onClose={() => setEnded(undefined)}
          action={async () => {
            await call("delete", "/api/operator/users/{user_id}/sessions/{session_id}", { path: { user_id: user, session_id: ended.id } });
            invalidate(key);
          }}
        >
          The user is signed out of {ended.userAgent ?? "a browser of an unknown kind"}, and of all tunnels.
        </Confirm>
      )}
    </section>
  );
}
