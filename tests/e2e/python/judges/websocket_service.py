"""A WebSocket service with `websockets`. It prints its address, and the test stops it.

    /echo?id=…    echoes; `id` names the conversation for `/seen`
    /close/1001   closes with this code; `none` closes without one
    /abort        sends a greeting and aborts the connection
    /seen?id=…    the service's view of the end of a conversation (plain HTTP)
"""

import asyncio
import json
import socket
import struct
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

SEEN = {}


def seen(connection, request):
    url = urlsplit(request.path)
    if url.path == "/seen":
        known = SEEN.get(parse_qs(url.query)["id"][0])
        return connection.respond(HTTPStatus.OK, json.dumps(known))
    return None


def chosen(_connection, offered):
    return next((name for name in ["second", "third"] if name in offered), None)


async def converse(connection):
    url = urlsplit(connection.request.path)
    if url.path.startswith("/close/"):
        code = url.path.removeprefix("/close/")
        if code == "none":
            async with connection.send_context():
                connection.protocol.send_close()
            await connection.wait_closed()
        else:
            await connection.close(int(code), "as asked")
        return
    if url.path == "/abort":
        await connection.send("hello")
        # A reset instead of a normal end, which the peer can distinguish.
        linger = struct.pack("ii", 1, 0)
        connection.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        connection.transport.abort()
        return
    try:
        while True:
            message = await connection.recv()
            if message == "fragments":
                await connection.send(["frag", "ment", "s"])
            elif message == "ping":
                await (await connection.ping("of the service"))
                await connection.send("ponged")
            else:
                await connection.send(message)
    except ConnectionClosed:
        pass
    await connection.wait_closed()
    name = parse_qs(url.query).get("id", [""])[0]
    SEEN[name] = connection.close_code


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    options = {"max_size": 4 << 20, "select_subprotocol": chosen}
    async with serve(converse, sock=listener, process_request=seen, **options):
        print(json.dumps({"address": "127.0.0.1:%d" % listener.getsockname()[1]}), flush=True)
        await asyncio.Future()


asyncio.run(main())
