"""Refusals of the engine, as the SDK reports them. SVC_TEST_READ_TOKEN may only read."""

import os

from under_test import client, refusal, run, soon


async def main():
    results = {
        "no_token": await refusal(client(token=None).connect()),
        "bad_token": await refusal(client(token="a.b.c").connect()),
    }
    async with client() as sdk:
        control = await soon(sdk.connect())

        async def create(**options):
            return await refusal(control.create_tunnel(**options))

        results["unavailable"] = {
            "geo_ip": await create(protocol="http", publish=True, geo_ip=("CH",)),
            "challenge_mode": await create(protocol="http", publish=True, challenge_mode=True),
            "svc_auth": await create(protocol="http", publish=True, rstream_auth=True),
            "mtls_auth": await create(protocol="http", publish=True, mtls_auth=True),
            "port": await create(protocol="tcp", port=7),
            "allow_cross_region_routing": await create(
                protocol="http", publish=True, allow_cross_region_routing=True
            ),
            "quic": await create(protocol="quic", publish=True),
            "hostname": await create(protocol="http", publish=True, hostname="www.example.com"),
        }
        results["invalid"] = {
            "tls_min_version": await create(protocol="http", publish=True, tls_min_version="tls9"),
            "trusted_ips": await create(protocol="http", publish=True, trusted_ips=("nowhere",)),
            "name": await create(name="two words", publish=False),
            "http_version": await create(
                protocol="http", publish=True, http_version="h2c", upstream_tls=True
            ),
        }
        results["name_twice"] = [await create(name="once", publish=False) for _ in range(2)]
        results["still_open"] = not control.closed

        results["dial_unknown"] = await refusal(sdk.dial("nobody", zero_rtt=False))
        async with await soon(sdk.dial("nobody", zero_rtt=True)) as stream:
            results["dial_unknown_zero_rtt"] = (await soon(stream.read())).decode()
        results["dial_bad_token"] = await refusal(
            sdk.dial("once", token="a.b.c", zero_rtt=False)
        )

        reader = os.environ["SVC_TEST_READ_TOKEN"]
        results["dial_read_token"] = await refusal(sdk.dial("once", token=reader, zero_rtt=False))
        async with client(token=reader) as limited:
            results["list_read_token"] = len(await limited.list_tunnels())
            try:
                channel = await soon(limited.connect())
                results["create_read_token"] = await refusal(channel.create_tunnel(publish=False))
            except Exception as error:
                results["create_read_token"] = {"code": getattr(error, "engine_code", None)}
    return results


run(main)
