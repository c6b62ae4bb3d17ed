"""A service that answers an upgrade byte by byte, depending on the path. It prints its address, and
the test stops it.

    /refuse       403 with a body            /version      426 with the supported versions
    /accept       a wrong Sec-WebSocket-Accept
    /glued        a message after the 101 in one piece
    /slow         the 101 byte by byte
    /half         waits for the end of the visitor's data, then sends a mebibyte and closes
    /ends         ends its data immediately; `/seen` returns the bytes received after that
    /resets       resets after the 101       /never        resets before it
"""

import base64
import hashlib
import json
import socket
import struct
import threading
from urllib.parse import urlsplit

HEARD = {}


def serve(connection):
    connection.settimeout(60)
    head = b""
    while b"\r\n\r\n" not in head:
        more = connection.recv(4096)
        if not more:
            return
        head += more
    head, _, rest = head.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    url = urlsplit(lines[0].split(" ")[1])
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    key = next((line.split(": ")[1] for line in lines if line.lower().startswith("sec-websocket-key")), "")
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    accept = base64.b64encode(digest).decode()
    switch = (
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()
    if url.path == "/seen":
        body = json.dumps(HEARD.get(url.query)).encode()
        answer = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(answer.encode() + body)
    elif url.path == "/refuse":
        assert fields["upgrade"] == "websocket", fields
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nnot today")
    elif url.path == "/version":
        connection.sendall(
            b"HTTP/1.1 426 Upgrade Required\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13, 8\r\nContent-Length: 0\r\n\r\n"
        )
    elif url.path == "/accept":
        connection.sendall(switch.replace(accept.encode(), b"bm90IHlvdXJzIGF0IGFsbCEhISE="))
    elif url.path == "/glued":
        connection.sendall(switch + b"\x81\x05hello")
        echo(connection, rest)
    elif url.path == "/slow":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in switch:
            connection.sendall(bytes([byte]))
        echo(connection, rest)
    elif url.path == "/half":
        connection.sendall(switch)
        echo(connection, rest)
        connection.sendall(b"\x82\x7f" + struct.pack("!Q", 1 << 20) + b"x" * (1 << 20))
    elif url.path == "/ends":
        connection.sendall(switch)
        connection.shutdown(socket.SHUT_WR)
        heard = rest
        while more := connection.recv(65536):
            heard += more
        HEARD[url.query] = heard.hex()
    elif url.path == "/resets":
        connection.sendall(switch + b"\x81\x05hello")
        reset(connection)
    elif url.path == "/never":
        reset(connection)


def echo(connection, rest):
    """Echoes raw bytes until the end."""
    while True:
        connection.sendall(rest)
        rest = connection.recv(65536)
        if not rest:
            return


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def take(connection):
    with connection:
        serve(connection)


listener = socket.create_server(("127.0.0.1", 0), backlog=64)
print(json.dumps({"address": "127.0.0.1:%d" % listener.getsockname()[1]}), flush=True)
while True:
    threading.Thread(target=take, args=(listener.accept()[0],), daemon=True).start()
