"""Publishes raw bytes: `tcp` on its own port, `tls` terminated at the edge."""

import asyncio

import rstream

from under_test import client, echo, exchange, run, soon, trust


async def visit(host, port, **tls):
    reader, writer = await asyncio.open_connection(host, port, **tls)
    async with rstream.RstreamStream(reader, writer) as stream:
        return [await exchange(stream, b"x" * size) for size in (1, 100_000)]


async def main():
    results = {}
    async with client() as sdk:
        control = await soon(sdk.connect())

        tcp = await soon(control.create_tunnel(protocol="tcp"))
        server = asyncio.create_task(echo(tcp))
        results["tcp_port"] = tcp.properties.port
        results["tcp_address"] = tcp.forwarding_address
        results["tcp"] = await visit("127.0.0.1", tcp.properties.port)
        await soon(tcp.close())
        await soon(server)

        tls = await soon(control.create_tunnel(protocol="tls", publish=True))
        server = asyncio.create_task(echo(tls))
        results["tls_mode"] = tls.properties.tls_mode
        results["tls_address"] = tls.forwarding_address
        hostname, port = tls.properties.hostname, tls.properties.port
        results["tls"] = await visit(hostname, port, ssl=trust())
        await soon(tls.close())
        await soon(server)
    return results


run(main)
