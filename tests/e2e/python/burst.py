"""More parallel visitors than the SDK accepts: it opens 64 connections at a time, queues 256 more,
and closes its control channel beyond that. An engine must not request more of it."""

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

        # All of them connect before the SDK's loop runs again.
        port = tunnel.properties.port
        visitors = [socket.create_connection(("127.0.0.1", port)) for _ in range(VISITORS)]

        async def visit(number, visitor):
            reader, writer = await asyncio.open_connection(sock=visitor)
            async with rstream.RstreamStream(reader, writer) as stream:
                return await exchange(stream, str(number).encode())

        visits = (visit(*numbered) for numbered in enumerate(visitors))
        answers = await asyncio.gather(*visits, return_exceptions=True)
        results = {
            "answered": sum(answer is True for answer in answers),
            "errors": sorted({repr(answer) for answer in answers if answer is not True}),
            "control_open": not control.closed,
        }
        if not control.closed:
            await soon(tunnel.close())
        await soon(server)
        return results


run(main)
