"""A visitor with `websockets` at one of the WebSocket services. Argument: JSON with

    url      address of the service, published or local
    ca_file  authority of a published one, or null
    service  host:port of the service itself, for its view of the connections

It prints the number of cases and the failed ones.
"""

import asyncio
import json
import ssl
import sys
import time
import urllib.request
import uuid

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import PerMessageDeflate

WORLD = json.loads(sys.argv[1])
SIZES = [0, 125, 126, 65535, 65536, 1 << 20]
CODES = [1000, 1001, 1011, 3000, 4999, None]
# Codes for a close frame without a code (RFC 6455, 7.1.5), and for no close frame at all.
NO_CODE, ABNORMAL = 1005, 1006

ran, wrong = 0, []


def check(case, was, expected):
    global ran
    ran += 1
    if was != expected:
        wrong.append(f"{case}: {str(was)[:200]}, not {str(expected)[:200]}")


def visit(path, **options):
    tls = ssl.create_default_context(cafile=WORLD["ca_file"]) if WORLD["ca_file"] else None
    # Every name resolves to this machine.
    options = {"host": "127.0.0.1", "max_size": None, "proxy": None, "compression": None, **options}
    return connect(WORLD["url"] + path, ssl=tls, **options)


async def seen(name):
    """The service's view of the end, as soon as it is known."""
    url = f"http://{WORLD['service']}/seen?id={name}"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        known = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(url).read()))
        if known is not None:
            return known
        await asyncio.sleep(0.01)
    return None


async def end(connection):
    try:
        while True:
            await connection.recv()
    except ConnectionClosed:
        return connection.close_code


async def echoes(connection, label):
    for size in SIZES:
        text = "é" * (size // 2) + "e" * (size % 2)
        await connection.send(text)
        check(f"{label} text of {size}", await connection.recv(), text)
        data = bytes(i * 7 % 251 for i in range(size))
        await connection.send(data)
        check(f"{label} binary of {size}", await connection.recv(), data)


async def main():
    async with visit("/echo") as connection:
        await echoes(connection, "plain")
        # RFC 6455, 5.4: control frames between the fragments of a message.
        async with connection.send_context():
            connection.protocol.send_text(b"in ", fin=False)
        pong = await connection.ping("between")
        async with connection.send_context():
            connection.protocol.send_continuation(b"", fin=False)
            connection.protocol.send_continuation(b"pieces", fin=True)
        check("fragments of the client", await connection.recv(), "in pieces")
        check("pong between fragments", isinstance(await pong, float), True)
        await connection.send("fragments")
        check("fragments of the service", await connection.recv(), "fragments")
        await connection.send("ping")
        check("a ping of the service", await connection.recv(), "ponged")
        for payload in ["", "x" * 125]:
            await (await connection.ping(payload))
            check(f"pong of {len(payload)}", True, True)

    for code in CODES:
        name = uuid.uuid4().hex
        connection = await visit(f"/echo?id={name}")
        if code is None:
            async with connection.send_context():
                connection.protocol.send_close()
        else:
            await connection.close(code, "done")
        check(f"close {code} of the client, back", connection.close_code, code or NO_CODE)
        check(f"close {code} of the client, there", await seen(name), code or NO_CODE)
        async with visit(f"/close/{code or 'none'}") as connection:
            check(f"close {code} of the service", await end(connection), code or NO_CODE)
            reason = "as asked" if code else ""
            check(f"reason of {code}", connection.close_reason, reason)

    for offered in [["first", "second"], ["third"]]:
        async with visit("/echo", subprotocols=offered) as connection:
            check(f"subprotocol of {offered}", connection.subprotocol, offered[-1])
    async with visit("/echo") as connection:
        check("no subprotocol", connection.subprotocol, None)

    async with visit("/echo", compression="deflate") as connection:
        names = [type(extension) for extension in connection.protocol.extensions]
        check("permessage-deflate (RFC 7692)", names, [PerMessageDeflate])
        await echoes(connection, "deflated")
    async with visit("/echo") as connection:
        check("no extension", connection.protocol.extensions, [])

    async with visit("/abort") as connection:
        check("before the break", await connection.recv(), "hello")
        check("a service that breaks off", await end(connection), ABNORMAL)
    name = uuid.uuid4().hex
    connection = await visit(f"/echo?id={name}")
    await connection.send("hello")
    await connection.recv()
    connection.transport.abort()
    check("a client that breaks off", await seen(name), ABNORMAL)


asyncio.run(main())
print(json.dumps({"ran": ran, "wrong": wrong}))
