// The stored events of a project.

import { call } from "../../api/client";
import { useResource } from "../../api/resource";
import { words } from "../../format/text";
import { useDialog, useFilter, usePage } from "../../router/location";
import { Select } from "../../ui/fields";
import { Dialog } from "../../ui/dialog";
import { Card, Empty, Json, Page, Pill, Time } from "../../ui/parts";
import { DetailsCell, PagedList, Table } from "../../ui/table";
import { EVENT_TYPES } from "./webhooks";

const PAGE_SIZE = 50;

export function Events({ project }: { project: string }) {
  const [type, setType] = useFilter("type");
  const [timeline, setTimeline] = useFilter("timeline", "24h");
  const [page, setPage] = usePage();
  const [chosen, setChosen] = useDialog("event");
  const events = useResource(
    `project/${project}/events/${type}/${timeline}/${page}`,
    (signal) =>
      call("get", "/api/projects/tunnels/{project_id}/events", {
        path: { project_id: project },
        query: { pageSize: PAGE_SIZE, page, timeline: timeline as "24h", eventType: type },
        signal,
      }),
    { every: 15_000 },
  );
  const event = events.data?.events.find((one) => one.eventId === chosen);
  return (
    <Page title="Events" note="Agents, tunnels and domains that came and went, as webhooks receive them.">
      <div class="bar">
        <Select label="Type" isLabelSeen={false} value={type} onValue={setType} options={[{ value: "", text: "All types" }, ...EVENT_TYPES.map((value) => ({ value, text: words(value) }))]} />
        <Select label="Time" isLabelSeen={false} value={timeline} onValue={setTimeline} options={[{ value: "1h", text: "1 hour" }, { value: "24h", text: "24 hours" }, { value: "3d", text: "3 days" }, { value: "1w", text: "1 week" }, { value: "30d", text: "30 days" }]} />
      </div>
      <Card isFlush>
        <PagedList of={events} items={(list) => list.events} empty={<Empty icon="audit" title="No events in this time" />} onPage={setPage}>
          {(list) => (
            <Table columns={["Time", "Event", "Object"]} hasActions>
              {list.map((one) => (
                <tr key={one.eventId}>
                  <td>
                    <Time at={one.createdAt} />
                  </td>
                  <td>
                    <Pill tone={one.eventType.endsWith("deleted") ? "bad" : "good"}>{words(one.eventType)}</Pill>
                  </td>
                  <td>{subject(one.payload)}</td>
                  <DetailsCell onOpen={() => setChosen(one.eventId)} />
                </tr>
              ))}
            </Table>
          )}
        </PagedList>
      </Card>
      {event !== undefined && (
        <Dialog title={words(event.eventType)} isWide onClose={() => setChosen("", true)}>
          <Json value={event} />
        </Dialog>
      )}
    </Page>
  );
}

function subject(payload: Readonly<Record<string, unknown>>): string {
  for (const name of ["name", "hostname", "agent", "id"]) {
    const value = payload[name];
    if (typeof value === "string" && value !== "") return value;
  }
  return "";
}
