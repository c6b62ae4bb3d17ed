"""Lists tunnels and clients, with every kind of filter."""

from rstream import ClientFilters, TunnelFilters

from under_test import client, refusal, run, soon


async def main():
    async with client() as sdk:
        first = await soon(sdk.connect())
        second = await soon(sdk.connect())
        web = await soon(
            first.create_tunnel(
                name="web", protocol="http", publish=True, labels={"env": "a b+c", "tier": "1"}
            )
        )
        await soon(first.create_tunnel(name="db", publish=False, labels={"tier": "2"}))
        await soon(second.create_tunnel(name="tls", protocol="tls", publish=True))

        async def names(limit=None, **filters):
            found = await sdk.list_tunnels(
                filters=TunnelFilters(**filters) if filters else None, limit=limit
            )
            return [tunnel.properties.name for tunnel in found]

        tunnels = await sdk.list_tunnels()
        clients = await sdk.list_clients()
        listed = tunnels[0]
        return {
            "all": await names(),
            "limit": await names(limit=2),
            "by_name": await names(name="db"),
            "by_id": await names(id=web.id),
            "by_client": await names(client_id=tunnels[2].client_id),
            "by_publish": await names(publish=False),
            "by_protocol": await names(protocol="tls"),
            "by_http_version": await names(http_version="http/1.1"),
            "by_hostname": await names(hostname=web.properties.hostname),
            "by_status": await names(status="offline"),
            "by_label": await names(labels={"env": "a b+c"}),
            "by_label_key": await names(labels={"tier": None}),
            "by_labels": await names(labels={"tier": "1", "env": None}),
            "by_nothing_there": await names(name="nobody"),
            "as_created": listed.properties == web.properties,
            "differs": [
                field
                for field in vars(web.properties)
                if getattr(listed.properties, field) != getattr(web.properties, field)
            ],
            "statuses": sorted({tunnel.status for tunnel in tunnels}),
            "clients": len(clients),
            "client": {key: clients[0].get(key) for key in ("agent", "channel", "version", "status")},
            "clients_by_agent": len(
                await sdk.list_clients(filters=ClientFilters(agent="rstream-python-runtime"))
            ),
            "clients_by_other_agent": len(
                await sdk.list_clients(filters=ClientFilters(agent="other"))
            ),
            "client_of_tunnel": listed.client_id in [item["id"] for item in clients],
            "bad_limit": await refusal(sdk.list_tunnels(limit=0)),
            "bad_token": await refusal(client(token="a.b.c").list_tunnels()),
        }


run(main)
