"""More visitors at once than the SDK takes: it opens 64 connections at a time, queues 256 more,
and gives up its control channel beyond that. An engine must not ask it for more."""

import asyncio
import socket

import rstream

from under_test import client, echo, exchange, run, soon

VISITORS = 400


async def main():
    async with client() as agent:
        control = await soon(agent.connect())
        tunnel = await soon(control.create_tunnel(protocol="tcp"))
        server = asyncio.create_task(echo(tunnel))

        # All of them before the SDK's loop runs again.
        port = tunnel.properties.port
        visitors = [socket.create_connection(("127.0.0.1", port)) for _ in range(VISITORS)]

        async def visit(number, visitor):
            reader, writer = await asyncio.open_connection(sock=visitor)
            async with rstream.RstreamStream(reader, writer) as stream:
                return await exchange(stream, str(number).encode())

        visits = (visit(*numbered) for numbered in enumerate(visitors))
        answers = await asyncio.gather(*visits, return_exceptions=True)
        # On a slow machine some have waited for the SDK longer than the engine lets them. Not the 64 that
        # it opens at a time, and not one who comes afterwards.
        results = {
            "a_batch_answered": sum(answer is True for answer in answers) >= 64,
            "control_open": not control.closed,
            "next_answered": await visit(VISITORS, socket.create_connection(("127.0.0.1", port))),
        }
        if not control.closed:
            await soon(tunnel.close())
        await soon(server)
        return results


run(main)
