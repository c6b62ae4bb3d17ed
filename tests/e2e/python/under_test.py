"""Shared code of the scripts: the address of the engine, and the one line of results.

A script is started with these variables:

    SVC_TEST_ENGINE   host:port of the engine
    SVC_TEST_CA_FILE  the authority that signed its certificate
    SVC_TEST_TOKEN    a token that may do everything

It prints one line of JSON and exits with 0. The test checks the results, not the script. A script
fails only if it cannot continue.
"""

import asyncio
import json
import os
import socket
import ssl

import httpx
import rstream

ENGINE = os.environ["SVC_TEST_ENGINE"]
CA_FILE = os.environ["SVC_TEST_CA_FILE"]
TOKEN = os.environ["SVC_TEST_TOKEN"]

# Time limit for events that must happen soon, on a busy machine.
PATIENCE = 60.0


def client(token=TOKEN, **options):
    """The SDK's client with explicit settings: it reads no file of this machine."""
    return rstream.Client(
        engine=ENGINE,
        token=token,
        no_token=token is None or None,
        tls=rstream.TLSOptions(ca_file=CA_FILE),
        read_config_file=False,
        **options,
    )


def visitor(**options):
    """A visitor of published names."""
    return httpx.AsyncClient(verify=trust(), timeout=PATIENCE, trust_env=False, **options)


def trust():
    """TLS for visitors."""
    return ssl.create_default_context(cafile=CA_FILE)


async def soon(awaitable):
    """The result, or a failure when it takes too long."""
    return await asyncio.wait_for(awaitable, PATIENCE)


async def until(condition):
    """Waits for a condition for which the SDK has no event."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


async def refusal(awaitable):
    """The SDK's error for a refusal."""
    try:
        await soon(awaitable)
    except rstream.EngineError as error:
        return {"code": error.engine_code, "message": str(error)}
    except rstream.RstreamError as error:
        return {"code": error.code, "message": str(error)}
    return None


async def echo(tunnel):
    """Echoes every stream of a tunnel until the tunnel closes."""

    async def serve(stream):
        async with stream:
            while data := await stream.read(64 * 1024):
                stream.write(data)
                await stream.drain()

    async with asyncio.TaskGroup() as streams:
        try:
            async for stream in tunnel:
                streams.create_task(serve(stream))
        except (rstream.RstreamError, OSError, asyncio.IncompleteReadError):
            pass


async def exchange(stream, data):
    """True if the bytes are echoed. Both directions run together: no buffer holds all."""

    async def send():
        stream.write(data)
        await stream.drain()

    _, received = await soon(asyncio.gather(send(), stream.readexactly(len(data))))
    return received == data


def run(main):
    """Runs the script and prints its results."""
    _find_localhost()
    print(json.dumps(asyncio.run(asyncio.wait_for(main(), 3 * PATIENCE))))


def _find_localhost():
    """Names under `localhost` are this machine (RFC 6761), which not every resolver knows."""
    ask = socket.getaddrinfo

    def getaddrinfo(host, *rest, **options):
        name = host.decode() if isinstance(host, bytes) else host
        if name is not None and name.endswith(".localhost"):
            host = "127.0.0.1"
        return ask(host, *rest, **options)

    socket.getaddrinfo = getaddrinfo
