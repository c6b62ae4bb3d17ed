// The search in the displayed output of recorded sessions.

import { useEffect, useState } from "preact/hooks";
import { callEngine, type Engine } from "../../api/client";
import { useFilter } from "../../router/location";
import { to } from "../../router/match";
import { useAction } from "../../ui/action";
import { Field } from "../../ui/fields";
import { FormError } from "../../ui/form";
import { Button, ButtonLink, Card, Empty, Failure, Time } from "../../ui/parts";

type Hit = Engine<"RecordingHit">;

/** Lines of one search. */
const LIMIT = 100;

export function RecordingSearch({ project, onOpen }: { project: string; onOpen: (id: string) => void }) {
  const [query, setQuery] = useFilter("text");
  const [hits, setHits] = useState<readonly Hit[] | undefined>(undefined);
  const [next, setNext] = useState<string | undefined>(undefined);
  const [isIncomplete, setIncomplete] = useState(false);
  const { isBusy, error, run } = useAction();
  const search = (before: string | undefined) =>
    run(async () => {
      const params = JSON.stringify({ query: query.trim(), limit: LIMIT, ...(before === undefined ? {} : { before }) });
      const found = await callEngine("get", project, "/api/webtty/recordings/search", { query: { params } });
      setHits(before === undefined ? found.hits : [...(hits ?? []), ...found.hits]);
      setNext(found.next);
      setIncomplete(found.incomplete || (before !== undefined && isIncomplete));
    });
  // The text is in the address, so a reload or a colleague gets the lines without typing.
  useEffect(() => {
    if (query.trim() !== "") search(undefined);
  }, []);
  const groups = bySession(hits ?? []);
  return (
    <>
      <form
        class="form"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          search(undefined);
        }}
      >
        <FormError.Provider value={error}>
          <Field label="Text in the output" name="query" value={query} onValue={(value) => setQuery(value, true)} isRequired maxLength={200} placeholder="permission denied" hint="Upper and lower case are the same." />
        </FormError.Provider>
        <div class="buttons">
          <Button type="submit" look="main" icon="search" isBusy={isBusy}>
            Search recordings
          </Button>
        </div>
      </form>
      {error !== undefined && <Failure error={error} onRetry={() => search(undefined)} />}
      {isIncomplete && <div class="note is-warn">Some recordings could not be read, so lines may be missing.</div>}
      {hits !== undefined && (
        <Card isFlush>
          {groups.length === 0 && <Empty icon="search" title={next === undefined ? "No line matches" : "No line matches in the newest sessions"} />}
          <ul class="plain rows">
            {groups.map(([session, lines]) => (
              <li key={session} class="stack">
                <span class="row">
                  <span>
                    Session <code>{session}</code> <span class="quiet small"><Time at={lines[0]?.created_at} /></span>
                  </span>
                  <span class="buttons">
                    <ButtonLink href={`${to("/projects/:project/sessions/:session", { project, session })}/replay`}>Replay</ButtonLink>
                    <Button look="bare" aria-label={`Details of the session ${session}`} onClick={() => onOpen(session)}>
                      Details
                    </Button>
                  </span>
                </span>
                <pre class="json" tabIndex={0}>
                  {lines.map((hit) => hit.line).join("\n")}
                </pre>
              </li>
            ))}
          </ul>
          <div class="paging">
            <span class="small quiet" role="status">
              {hits.length} {hits.length === 1 ? "line" : "lines"} in {groups.length} {groups.length === 1 ? "session" : "sessions"}
              , at most twenty of each
            </span>
            {next !== undefined && (
              <Button isBusy={isBusy} onClick={() => search(next)}>
                Search older sessions
              </Button>
            )}
          </div>
        </Card>
      )}
    </>
  );
}

function bySession(hits: readonly Hit[]): [string, Hit[]][] {
  const groups = new Map<string, Hit[]>();
  for (const hit of hits) groups.set(hit.session_id, [...(groups.get(hit.session_id) ?? []), hit]);
  return [...groups];
}
