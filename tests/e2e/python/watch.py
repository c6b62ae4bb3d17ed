"""Watches changes of tunnels and clients. Argument: `sse` or `websocket`."""

import sys

from rstream import ClientFilters, TunnelFilters

from under_test import client, refusal, run, soon


async def main():
    transport = sys.argv[1]
    filters = {"tunnels": TunnelFilters(labels={"seen": None}), "clients": ClientFilters()}
    async with client() as sdk, client() as watcher:
        control = await soon(sdk.connect())
        before = await soon(
            control.create_tunnel(name="before", publish=False, labels={"seen": "1"})
        )
        results = {"events": []}
        async with watcher.watch(transport=transport, **filters) as events:

            async def next_event():
                event = await soon(anext(events))
                results["events"].append(event.type)
                return event

            initial = await next_event()
            results["initial_tunnels"] = [item["name"] for item in initial.object["tunnels"]]
            results["initial_clients"] = len(initial.object["clients"])
            results["snapshot_at"] = "snapshot_at" in initial.object

            await soon(control.create_tunnel(name="unseen", publish=False))
            after = await soon(
                control.create_tunnel(name="after", publish=False, labels={"seen": "2"})
            )
            created = await next_event()
            results["created"] = [created.object["name"], created.object["id"] == after.id]
            results["envelope"] = created.id is not None and created.created_at is not None

            await soon(before.close())
            deleted = await next_event()
            results["deleted"] = deleted.object["id"] == before.id

            other = await soon(sdk.connect())
            await next_event()
            await soon(other.close())
            await next_event()
        results["refused"] = await refusal(
            anext(client(token="a.b.c").watch(transport="sse"))
        )
        return results


run(main)
