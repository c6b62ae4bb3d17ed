// The browser sessions of a user, for operators.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { useResource } from "../../api/resource";
import { useAction } from "../../ui/action";
import { Button, Failure, Loaded, Pill, Time } from "../../ui/parts";
import { Table } from "../../ui/table";
import { toast } from "../../ui/toasts";

export function UserSessions({ user }: { user: string }) {
  const key = `installation/users/sessions/${user}`;
  const [asked, setAsked] = useState<string | undefined>(undefined);
  const { isBusy, error, run } = useAction(key);
  const list = useResource(key, (signal) => call("get", "/api/operator/users/{user_id}/sessions", { path: { user_id: user }, signal }), { every: 30_000 });
  const end = (id: string) =>
    run(async () => {
      await call("delete", "/api/operator/users/{user_id}/sessions/{session_id}", { path: { user_id: user, session_id: id } });
      setAsked(undefined);
      toast("The session has ended.");
    });
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
                    {asked === one.id ? (
                      <div class="buttons">
                        <Button look="grave" isBusy={isBusy} onClick={() => end(one.id)}>
                          End now
                        </Button>
                        <Button onClick={() => setAsked(undefined)}>Cancel</Button>
                      </div>
                    ) : (
                      <Button look="bare" onClick={() => setAsked(one.id)}>
                        End
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
      {error !== undefined && <Failure error={error} />}
    </section>
  );
}
