// One session of a terminal: its facts, requests for control, and the actions on its recording.

import { useState } from "preact/hooks";
import { callEngine, type Engine, engineBase } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { useUser } from "../../api/data";
import { amountOf, commandOf, type ControlRequest, durationOf, endOf, isOver, type Session } from "../../format/session";
import { count } from "../../format/text";
import { useNow } from "../../ui/clock";
import { useAction } from "../../ui/action";
import { Confirm, Dialog } from "../../ui/dialog";
import { Button, Facts, Failure, Loaded, Status, Time } from "../../ui/parts";
import { toast } from "../../ui/toasts";
import { useProjectRights } from "./rights";
import { personOf, SessionLink, type SessionNames, serverOf } from "./sessions";

interface Props {
  project: string;
  id: string;
  names: SessionNames;
  onClose: () => void;
}

export function SessionDialog({ project, id, names, onClose }: Props) {
  const [show, setShow] = useState<"" | "end" | "delete">("");
  const now = useNow();
  const rights = useProjectRights(project);
  const user = useUser().data;
  const session = useResource(`project/${project}/session/${id}`, (signal) => callEngine("get", project, "/api/webtty/sessions/{id}", { path: { id }, signal }), { every: 5_000 });
  const mayRead = rights.may("webtty.logs.read-only");
  // As the engine decides it: the opener, and admins and owners.
  const isOwner = (one: Session) => rights.may("webtty.sessions.read-write") && (mayRead || (user !== undefined && one.initiator_user_id === user.id));
  const changed = () => invalidate(`project/${project}/session`);
  if (show === "end") {
    return (
      <Confirm
        title="End the session"
        verb="End the session"
        done="The session is ended."
        onClose={onClose}
        action={async () => {
          await callEngine("delete", project, "/api/webtty/sessions/{id}", { path: { id } });
          changed();
        }}
      >
        Its command is ended, and each participant is disconnected. The recording stays.
      </Confirm>
    );
  }
  if (show === "delete") {
    return (
      <Confirm
        title="Delete the recording"
        verb="Delete the recording"
        typed={id}
        done="The recording is deleted."
        onClose={onClose}
        action={async () => {
          await callEngine("delete", project, "/api/webtty/sessions/{id}/recording", { path: { id } });
          changed();
        }}
      >
        Everything that was shown and typed is deleted for good. The session stays in the list.
      </Confirm>
    );
  }
  return (
    <Dialog title="Session" isWide onClose={onClose}>
      <Loaded of={session}>
        {(one) => (
          <>
            <Facts
              rows={[
                ["Server", serverOf(one, names)],
                ["User", personOf(one, names)],
                ["Command", commandOf(one) === undefined ? undefined : <code key="command">{commandOf(one)}</code>],
                ["State", <span key="state"><Status of={one.status} /> {endOf(one)}</span>],
                ["Started", <Time key="started" at={one.started_at} isRelative={false} />],
                ["Ended", one.ended_at === undefined ? undefined : <Time key="ended" at={one.ended_at} isRelative={false} />],
                ["Duration", durationOf(one, now)],
                ["Recording", one.recording_mode],
                ["Encryption", one.encryption_mode],
                ["Error", one.error_code === undefined ? undefined : <code key="error">{one.error_code}</code>],
                ["Id", <code key="id">{one.id}</code>],
              ]}
            />
            <div class="buttons">
              <SessionLink project={project} session={one} mayRead={mayRead} />
              {!isOver(one) && isOwner(one) && (
                <Button look="grave" onClick={() => setShow("end")}>
                  End the session
                </Button>
              )}
            </div>
            {!isOver(one) && <Requests project={project} session={one} names={names} mayDecide={isOwner(one)} />}
            {mayRead && one.recording_mode === "recorded" && <Recording project={project} session={one} mayDelete={isOver(one) && rights.may("webtty.logs.read-write")} onDelete={() => setShow("delete")} />}
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

function Requests({ project, session, names, mayDecide }: { project: string; session: Session; names: SessionNames; mayDecide: boolean }) {
  const { isBusy, error, run } = useAction(`project/${project}/session/${session.id}`);
  const requests = useResource(`project/${project}/session/${session.id}/requests`, (signal) => callEngine("get", project, "/api/webtty/sessions/{id}/control-requests", { path: { id: session.id }, signal }), { every: 3_000 });
  const decide = (one: ControlRequest, action: Engine<"ControlAction">, done: string) =>
    run(async () => {
      await callEngine("post", project, "/api/webtty/sessions/{id}/control-requests/{request_id}", { path: { id: session.id, request_id: one.id }, body: { action } });
      toast(done);
    });
  const nameOf = (one: ControlRequest) => (one.requester_user_id === undefined ? one.requester_participant_id : (names.people.get(one.requester_user_id) ?? one.requester_user_id));
  return (
    <>
      <h3>Requests for control</h3>
      {error !== undefined && <Failure error={error} />}
      <Loaded of={requests} rows={1}>
        {(list) =>
          list.length === 0 ? (
            <p class="quiet">There is no request.</p>
          ) : (
            <ul class="plain rows">
              {list.map((one) => (
                <li key={one.id} class="row">
                  <span class="stack">
                    <span>
                      {nameOf(one)} <Status of={one.status} /> <span class="quiet small">{amountOf(one)}, <Time at={one.created_at} /></span>
                    </span>
                    {one.reason !== undefined && <span class="small">{one.reason}</span>}
                  </span>
                  {mayDecide && (
                    <span class="buttons">
                      {one.status === "pending" && (
                        <>
                          <Button isBusy={isBusy} aria-label={`Grant control to ${nameOf(one)}`} onClick={() => decide(one, "grant", `${nameOf(one)} has control now.`)}>
                            Grant
                          </Button>
                          <Button isBusy={isBusy} aria-label={`Refuse control to ${nameOf(one)}`} onClick={() => decide(one, "refuse", "The request is refused.")}>
                            Refuse
                          </Button>
                        </>
                      )}
                      {one.status === "granted" && (
                        <Button isBusy={isBusy} aria-label={`Take control back from ${nameOf(one)}`} onClick={() => decide(one, "revoke", "Control is taken back.")}>
                          Take back
                        </Button>
                      )}
                    </span>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </>
  );
}

const FORMATS = [
  { format: "text", end: "txt", text: "Text" },
  { format: "ndjson", end: "ndjson", text: "Records with hashes" },
  { format: "asciicast", end: "cast", text: "asciicast" },
];

function Recording({ project, session, mayDelete, onDelete }: { project: string; session: Session; mayDelete: boolean; onDelete: () => void }) {
  const [verdict, setVerdict] = useState<Engine<"WebttyRecordingVerdict"> | undefined>(undefined);
  const { isBusy, error, run } = useAction();
  const verify = () => run(async () => setVerdict(await callEngine("get", project, "/api/webtty/sessions/{id}/verify", { path: { id: session.id } })));
  const at = `${engineBase(project)}/api/webtty/sessions/${encodeURIComponent(session.id)}/export`;
  return (
    <>
      <h3>Recording</h3>
      <div class="buttons">
        {FORMATS.map(({ format, end, text }) => (
          <a key={format} class="button" href={`${at}?format=${format}`} download={`${session.id}.${end}`}>
            Export: {text}
          </a>
        ))}
        <Button isBusy={isBusy} onClick={verify}>
          Verify
        </Button>
        {mayDelete && (
          <Button look="grave" onClick={onDelete}>
            Delete the recording
          </Button>
        )}
      </div>
      {error !== undefined && <Failure error={error} onRetry={verify} />}
      {verdict !== undefined && (
        <div class={verdict.ok ? "note is-good" : "note is-bad"} role="status">
          {verdict.ok ? `The recording is unchanged: ${count(verdict.records)} records.` : `The recording was changed${verdict.broken_at === undefined ? "" : ` at record ${verdict.broken_at}`}: ${verdict.fault ?? "it is not intact"}.`}
        </div>
      )}
    </>
  );
}
