"""A WebSocket over HTTP/2 (RFC 8441): `h2` carries the stream, and `websockets` uses it with
masks, fragments and closes. Argument: JSON with

    tunnel   host:port of the published name of a WebSocket service
    ca_file  the authority of that name
    service  host:port of the service itself, for its view of the connections

It prints the number of cases and the failed ones.
"""

import json
import socket
import ssl
import sys
import time
import urllib.request

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
from websockets.frames import CloseCode, Opcode
from websockets.protocol import CLIENT, Protocol

WORLD = json.loads(sys.argv[1])
PATIENCE = 60
HOST, PORT = WORLD["tunnel"].rsplit(":", 1)

ran, wrong = 0, []


def check(case, was, expected):
    global ran
    ran += 1
    if was != expected:
        wrong.append(f"{case}: {str(was)[:200]}, not {str(expected)[:200]}")


class Visitor:
    """One HTTP/2 connection."""

    def __init__(self):
        context = ssl.create_default_context(cafile=WORLD["ca_file"])
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", int(PORT)), timeout=PATIENCE)
        self.socket = context.wrap_socket(plain, server_hostname=HOST)
        config = h2.config.H2Configuration(client_side=True, validate_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.streams = {}
        self.flush()
        # Section 3: a client must wait until the server has announced the setting.
        while not self.h2.remote_settings.enable_connect_protocol:
            self.receive()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def receive(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the connection ended")
        for event in self.h2.receive_data(data):
            stream = self.streams.get(getattr(event, "stream_id", None))
            if isinstance(event, h2.events.ResponseReceived):
                stream.head = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h2.events.DataReceived):
                stream.protocol.receive_data(event.data)
                stream.body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                stream.protocol.receive_eof()
                stream.end = "end"
            elif isinstance(event, h2.events.StreamReset):
                stream.end = f"reset {int(event.error_code)}"
        self.flush()

    def open(self, path, **changes):
        fields = {
            ":method": "CONNECT",
            ":protocol": "websocket",
            ":scheme": "https",
            ":authority": WORLD["tunnel"],
            ":path": path,
            "sec-websocket-version": "13",
        }
        fields.update({name.replace("_", "-"): value for name, value in changes.items()})
        stream = Stream(self, self.h2.get_next_available_stream_id())
        self.streams[stream.id] = stream
        self.h2.send_headers(stream.id, [*fields.items()])
        self.flush()
        while stream.head is None and stream.end is None:
            self.receive()
        return stream


class Stream:
    """One WebSocket among the streams of a connection."""

    def __init__(self, visitor, number):
        self.visitor, self.id = visitor, number
        self.head, self.end, self.body = None, None, b""
        self.protocol = Protocol(CLIENT, max_size=None)
        self.frames = []

    def send(self):
        """Sends the protocol's pending data, as the windows allow."""
        for data in self.protocol.data_to_send():
            if not data:
                self.visitor.h2.end_stream(self.id)
                self.visitor.flush()
            while data:
                room = self.visitor.h2.local_flow_control_window(self.id)
                room = min(room, self.visitor.h2.max_outbound_frame_size, len(data))
                if room == 0:
                    self.visitor.receive()
                    continue
                self.visitor.h2.send_data(self.id, data[:room])
                self.visitor.flush()
                data = data[room:]

    def next(self):
        """The next frame, or None at the end."""
        while not self.frames:
            self.frames += self.protocol.events_received()
            if not self.frames:
                if self.end is not None:
                    return None
                self.visitor.receive()
        return self.frames.pop(0)

    def message(self):
        frame = self.next()
        data = bytes(frame.data)
        while not frame.fin:
            frame = self.next()
            data += bytes(frame.data)
        return data


def seen(name):
    """The service's view of the end, as soon as it is known."""
    url = f"http://{WORLD['service']}/seen?id={name}"
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        known = json.loads(urllib.request.urlopen(url).read())
        if known is not None:
            return known
        time.sleep(0.01)
    return None


def main():
    visitor = Visitor()
    stream = visitor.open("/echo?id=h2", sec_websocket_protocol="first, second")
    check("an extended CONNECT (section 5)", stream.head[":status"], "200")
    check("its subprotocol", stream.head.get("sec-websocket-protocol"), "second")
    # Section 5: these belong to the handshake of HTTP/1.1.
    for name in ["sec-websocket-accept", "connection", "upgrade"]:
        check(f"no {name}", stream.head.get(name), None)
    for size in [0, 125, 126, 65535, 65536, 1 << 20]:
        data = bytes(i * 7 % 251 for i in range(size))
        stream.protocol.send_binary(data)
        stream.send()
        check(f"binary of {size}", stream.message(), data)
    stream.protocol.send_text(b"in ", fin=False)
    stream.protocol.send_ping(b"between")
    stream.protocol.send_continuation(b"pieces", fin=True)
    stream.send()
    pong = stream.next()
    check("pong between fragments", (pong.opcode, bytes(pong.data)), (Opcode.PONG, b"between"))
    check("fragments", stream.message(), b"in pieces")

    # A second one on the same connection, while the first is open.
    other = visitor.open("/close/4999")
    check("a close of the service", other.next().opcode, Opcode.CLOSE)
    check("its code", other.protocol.close_rcvd.code, 4999)
    other.send()
    check("its end (section 5.1: END_STREAM is the FIN)", (other.next(), other.end), (None, "end"))
    stream.protocol.send_text(b"still here")
    stream.send()
    check("the first goes on", stream.message(), b"still here")
    stream.protocol.send_close(CloseCode.NORMAL_CLOSURE)
    stream.send()
    check("a close of the visitor", stream.next().opcode, Opcode.CLOSE)
    check("the end of the service", stream.next(), None)
    # The visitor sends END_STREAM, and the service waits for it.
    stream.send()
    check("the service knows", seen("h2"), 1000)

    # Section 5.1: RST_STREAM corresponds to a TCP reset.
    broken = visitor.open("/echo?id=h2-reset")
    visitor.h2.reset_stream(broken.id, h2.errors.ErrorCodes.CANCEL)
    visitor.flush()
    check("a visitor that breaks off", seen("h2-reset"), 1006)
    aborted = visitor.open("/abort")
    check("before the break", aborted.message(), b"hello")
    check("a service that breaks off", (aborted.next(), aborted.end != "end"), (None, True))

    refused = visitor.open("/echo", sec_websocket_version="12")
    check("a version that the service does not know", refused.head[":status"], "400")


main()
print(json.dumps({"ran": ran, "wrong": wrong}))
