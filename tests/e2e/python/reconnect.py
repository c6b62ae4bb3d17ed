"""An agent as applications write it, because the SDK has no automatic reconnect: when the channel has
ended, it opens a channel and the tunnel again, with a pause before each attempt. It prints a line each time
it is online, and runs until it is killed.

Argument: seconds between two attempts.
"""

import asyncio
import json
import sys

import rstream

from under_test import client, run, soon

PAUSE = float(sys.argv[1])
LOST = (rstream.RstreamError, OSError, asyncio.IncompleteReadError)


async def answer(stream, continued):
    """Answers one request. The answer to `/slow` ends with the next request of `/continue`."""
    async with stream:
        head = await stream.reader.readuntil(b"\r\n\r\n")
        stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nbegun")
        await stream.drain()
        if head.startswith(b"GET /slow "):
            await continued.wait()
        if head.startswith(b"GET /continue "):
            continued.set()
        stream.write(b" done")
        await stream.drain()


async def publish(agent):
    """The tunnel on a new channel."""
    control = await soon(agent.connect())
    return await soon(control.create_tunnel(protocol="http", publish=True, hostname="sdk"))


async def serve(tunnel, continued, streams):
    """Answers every stream until the tunnel ends. The streams outlive it."""
    async for stream in tunnel:
        task = asyncio.create_task(answer(stream, continued))
        streams.add(task)
        task.add_done_callback(streams.discard)


async def main():
    continued = asyncio.Event()
    streams = set()
    failures = 0
    async with client() as agent:
        while True:
            try:
                tunnel = await publish(agent)
            except LOST:
                failures += 1
                await asyncio.sleep(PAUSE)
                continue
            address = tunnel.forwarding_address
            online = {"id": tunnel.id, "address": address, "failures": failures}
            print(json.dumps(online), flush=True)
            failures = 0
            try:
                await serve(tunnel, continued, streams)
            except LOST:
                pass
            await asyncio.sleep(PAUSE)


run(main)
