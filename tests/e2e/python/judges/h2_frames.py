"""An HTTP/2 visitor with `h2`, and with the frames and field blocks of its parts (`hyperframe`,
`hpack`) for rows that a well-behaved visitor would not send. Argument: JSON with

    counted   host:port of a published name
    count     host:port of a service that returns the number of requests by that name
    other     host:port of another published name, whose requests are not counted
    ca_file   the authority of both names

A row has the outcome of stream 1 or of the connection: `200` an answer, `reset 1` the end of the
stream with this code (RFC 9113, 7), `goaway 1` that of the connection. After each row another
visitor, `h2` itself, is served. It prints the number of rows and the failed ones.
"""

import json
import socket
import ssl
import struct
import sys
import urllib.request

import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

WORLD = json.loads(sys.argv[1])
# The visited name.
name = WORLD["other"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL, FLOW, CLOSED, SIZE, REFUSED, COMPRESSION, CALM = 0, 1, 3, 5, 6, 7, 9, 11

ran, wrong = 0, []


def check(case, was, expected):
    global ran
    ran += 1
    if was != expected and not (isinstance(expected, tuple) and was in expected):
        wrong.append(f"{case}: {was}, not {expected}")


def connect():
    context = ssl.create_default_context(cafile=WORLD["ca_file"])
    context.set_alpn_protocols(["h2"])
    host, port = name.rsplit(":", 1)
    plain = socket.create_connection(("127.0.0.1", int(port)), timeout=60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=host)


def upstream():
    """Requests that have arrived by the counted name."""
    return int(urllib.request.urlopen(f"http://{WORLD['count']}/").read())


def get(path="/", **changes):
    """The fields of a valid request with some changed; None removes one."""
    fields = {":method": "GET", ":scheme": "https", ":authority": name, ":path": path}
    fields.update(changes)
    return [(name, value) for name, value in fields.items() if value is not None]


def post(*more, **changes):
    return get(**{":method": "POST", **changes}) + list(more)


def block(fields):
    return hpack.Encoder().encode(fields, huffman=False)


def headers(fields, stream=1, flags=("END_HEADERS", "END_STREAM")):
    data = fields if isinstance(fields, bytes) else block(fields)
    return HeadersFrame(stream, data, flags=flags)


def opened(fields=None, stream=1):
    """A request whose body is still missing."""
    return headers(fields or post(), stream, ["END_HEADERS"])


def raw(kind, flags, stream, body):
    """A frame that the library would not create."""
    return struct.pack("!I", len(body))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + body


def settings(identifier, value):
    return raw(4, 0, 0, struct.pack("!HI", identifier, value))


def bytes_of(frames):
    parts = [frame if isinstance(frame, bytes) else frame.serialize() for frame in frames]
    return b"".join(parts)


def fate(frames, stream=1):
    """Sends the frames and returns the outcome of the stream or of the connection."""
    connection = connect()
    decoder = hpack.Decoder()
    unread, status, code = b"", None, None
    try:
        connection.sendall(PREFACE + SettingsFrame(0).serialize() + bytes_of(frames))
    except OSError:
        pass  # What came back says why.
    with connection:
        while True:
            while len(unread) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(unread[:9]))
                if len(unread) < 9 + length:
                    break
                frame.parse_body(memoryview(unread[9 : 9 + length]))
                unread = unread[9 + length :]
                if isinstance(frame, GoAwayFrame):
                    code = frame.error_code
                elif isinstance(frame, RstStreamFrame) and frame.stream_id == stream:
                    # No error: the answer was complete before the request (8.1).
                    return status if status and frame.error_code == NO_ERROR else f"reset {frame.error_code}"
                elif isinstance(frame, HeadersFrame):
                    fields = dict(decoder.decode(frame.data))
                    if frame.stream_id == stream:
                        status = fields.get(":status", status)
                if frame.stream_id == stream and "END_STREAM" in frame.flags:
                    return status
            try:
                more = connection.recv(65536)
            except TimeoutError:
                return "nothing"
            except OSError:
                more = b""
            if not more:
                return "end" if code is None else f"goaway {code}"
            unread += more


class Other:
    """A well-behaved visitor on one connection during the whole test."""

    def __init__(self):
        self.socket = connect()
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.socket.sendall(self.h2.data_to_send())

    def get(self, path="/"):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, get(path), end_stream=True)
        self.socket.sendall(self.h2.data_to_send())
        status = None
        while True:
            for event in self.h2.receive_data(self.socket.recv(65536)):
                if isinstance(event, h2.events.DataReceived):
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if isinstance(event, h2.events.ResponseReceived):
                    status = dict(event.headers)[b":status"].decode()
                if isinstance(event, h2.events.StreamEnded) and event.stream_id == stream:
                    self.socket.sendall(self.h2.data_to_send())
                    return status
            self.socket.sendall(self.h2.data_to_send())


def reset(code):
    """A stream error, or the connection's: the stricter is allowed (RFC 9113, 5.4.2)."""
    return (f"reset {code}", f"goaway {code}")


def goaway(code):
    return (f"goaway {code}",)


MALFORMED = reset(PROTOCOL)


def as_protocol_error(_code):
    """RFC 9113 requires this code; the library of the edge ends the connection with the general one.
    The end is what matters. The row fails when the library starts to send the exact code."""
    return "goaway 1"


PING = PingFrame(0, b"12345678")

# The order of processing decides whether it reaches the service.
EITHER = None


def rows():
    """Case, frames, expected outcome, requests that reach the service."""
    good = headers(get())
    # A block that expands to far more than its size: 4000 bytes in the table, referenced again and
    # again by an index of one byte (RFC 7541, 7.3).
    bomb = block(get()) + b"\x40\x01x\x7f\xa1\x1e" + b"a" * 4000 + b"\xbe" * 10_000
    return [
        ("a good request", [good], "200", 1),
        ("a good one with trailers", [opened(), DataFrame(1, b"x"), headers([("x", "y")])], "200", 1),
        # 4: frames
        ("an unknown frame is ignored (4.1)", [raw(0xBE, 0xFF, 0, b"?" * 10), raw(0xBE, 0, 1, b""), good], "200", 1),
        ("unknown flags are ignored (4.1)", [raw(6, 0xFE, 0, b"12345678"), good], "200", 1),
        ("the reserved bit is ignored (4.1)", [raw(1, 5, 1 << 31 | 1, block(get()))], "200", 1),
        ("a frame longer than allowed (4.2)", [opened(), raw(0, 0, 1, b"x" * 16_385)], reset(SIZE), EITHER),
        # 5.1: streams
        ("DATA on an idle stream (5.1)", [DataFrame(1, b"x")], goaway(PROTOCOL), 0),
        ("RST_STREAM on an idle stream (5.1)", [RstStreamFrame(1, 8)], goaway(PROTOCOL), 0),
        ("WINDOW_UPDATE on an idle stream (5.1)", [WindowUpdateFrame(1, 1)], goaway(PROTOCOL), 0),
        ("HEADERS on an even stream (5.1.1)", [headers(get(), 2)], goaway(PROTOCOL), 0),
        ("an older stream after a newer (5.1.1)", [headers(get(), 3), headers(get(), 1)], goaway(PROTOCOL), EITHER),
        # 6.1: DATA
        ("DATA on stream 0 (6.1)", [raw(0, 0, 0, b"x")], goaway(PROTOCOL), 0),
        ("DATA padded beyond itself (6.1)", [opened(), raw(0, 8, 1, b"\x05xx")], goaway(PROTOCOL), EITHER),
        ("DATA after the end (5.1)", [good, DataFrame(1, b"x")], as_protocol_error(CLOSED), EITHER),
        # 6.2: HEADERS
        ("HEADERS on stream 0 (6.2)", [raw(1, 5, 0, block(get()))], goaway(PROTOCOL), 0),
        ("HEADERS padded beyond itself (6.2)", [raw(1, 13, 1, b"\xff" + block(get()))], goaway(PROTOCOL), 0),
        # 6.3: PRIORITY, which RFC 9113 deprecates. A dependency on itself is not checked any more
        # (5.3.2).
        ("PRIORITY of a stream on itself (5.3)", [raw(2, 0, 1, struct.pack("!IB", 1, 16)), good], ("200", *reset(PROTOCOL)), EITHER),
        ("PRIORITY of 4 bytes (6.3)", [raw(2, 0, 1, b"1234"), good], as_protocol_error(SIZE), 0),
        ("PRIORITY on stream 0 (6.3)", [raw(2, 0, 0, b"12345")], goaway(PROTOCOL), 0),
        # 6.4: RST_STREAM
        ("RST_STREAM on stream 0 (6.4)", [raw(3, 0, 0, b"1234")], goaway(PROTOCOL), 0),
        ("RST_STREAM of 3 bytes (6.4)", [opened(), raw(3, 0, 1, b"123")], as_protocol_error(SIZE), EITHER),
        # 6.5: SETTINGS
        ("SETTINGS on a stream (6.5)", [raw(4, 0, 1, b"")], goaway(PROTOCOL), 0),
        ("SETTINGS of 5 bytes (6.5)", [raw(4, 0, 0, b"12345")], as_protocol_error(SIZE), 0),
        ("an acknowledgement with content (6.5)", [raw(4, 1, 0, b"123456")], as_protocol_error(SIZE), 0),
        ("ENABLE_PUSH 2 (6.5.2)", [settings(2, 2)], goaway(PROTOCOL), 0),
        ("INITIAL_WINDOW_SIZE 2^31 (6.5.2)", [settings(4, 1 << 31)], as_protocol_error(FLOW), 0),
        ("MAX_FRAME_SIZE 16383 (6.5.2)", [settings(5, 16_383)], goaway(PROTOCOL), 0),
        ("MAX_FRAME_SIZE 2^24 (6.5.2)", [settings(5, 1 << 24)], goaway(PROTOCOL), 0),
        ("unknown settings are ignored (6.5.2)", [settings(0xFACE, 7), good], "200", 1),
        # 6.6: PUSH_PROMISE
        ("PUSH_PROMISE of a client (8.4)", [opened(), PushPromiseFrame(1, 2, block(get()), flags=["END_HEADERS"])], goaway(PROTOCOL), EITHER),
        # 6.7: PING
        ("PING on a stream (6.7)", [raw(6, 0, 1, b"12345678")], goaway(PROTOCOL), 0),
        ("PING of 7 bytes (6.7)", [raw(6, 0, 0, b"1234567")], as_protocol_error(SIZE), 0),
        ("a PING before a request (6.7)", [PING, good], "200", 1),
        # 6.8: GOAWAY
        ("GOAWAY on a stream (6.8)", [raw(7, 0, 1, b"\0" * 8)], goaway(PROTOCOL), 0),
        ("GOAWAY behind a request, which is served (6.8)", [good, GoAwayFrame(0, 0, 0)], "200", 1),
        # 6.9: flow control
        ("WINDOW_UPDATE 0 of the connection (6.9)", [raw(8, 0, 0, b"\0" * 4)], goaway(PROTOCOL), 0),
        ("WINDOW_UPDATE 0 of a stream (6.9)", [opened(), raw(8, 0, 1, b"\0" * 4)], reset(PROTOCOL), EITHER),
        ("WINDOW_UPDATE of 3 bytes (6.9)", [raw(8, 0, 0, b"123")], as_protocol_error(SIZE), 0),
        ("the connection's window above 2^31-1 (6.9.1)", [WindowUpdateFrame(0, (1 << 31) - 1)], goaway(FLOW), 0),
        ("a stream's window above 2^31-1 (6.9.1)", [opened(), WindowUpdateFrame(1, (1 << 31) - 1)], reset(FLOW), EITHER),
        ("more DATA than the window (6.9)", [opened(post(), 1), *[DataFrame(1, b"x" * 16_384)] * 400], (*reset(FLOW), "200", "reset 8"), EITHER),
        # 6.10: CONTINUATION
        ("CONTINUATION of nothing (6.10)", [ContinuationFrame(1, b"", flags=["END_HEADERS"])], goaway(PROTOCOL), 0),
        ("CONTINUATION of another stream (6.10)", [headers(get(), 1, ["END_STREAM"]), ContinuationFrame(3, b"", flags=["END_HEADERS"])], goaway(PROTOCOL), 0),
        ("a PING within a block (6.10)", [headers(get(), 1, ["END_STREAM"]), PING, ContinuationFrame(1, b"", flags=["END_HEADERS"])], goaway(PROTOCOL), 0),
        ("an unknown frame within a block (6.10)", [headers(get(), 1, ["END_STREAM"]), raw(0xBE, 0, 1, b"")], goaway(PROTOCOL), 0),
        ("a block in two frames (6.10)", [headers(block(get())[:5], 1, ["END_STREAM"]), ContinuationFrame(1, block(get())[5:], flags=["END_HEADERS"])], "200", 1),
        # 4.3 and RFC 7541: field blocks
        ("an index of no field (RFC 7541, 2.3.3)", [headers(b"\xbf")], as_protocol_error(COMPRESSION), 0),
        ("an index of 0 (RFC 7541, 6.1)", [headers(b"\x80")], as_protocol_error(COMPRESSION), 0),
        ("a table larger than offered (RFC 7541, 6.3)", [headers(b"\x3f\xff\xff\x7f" + block(get()))], as_protocol_error(COMPRESSION), 0),
        ("a change of the table behind fields (RFC 7541, 4.2)", [headers(block(get()) + b"\x20")], as_protocol_error(COMPRESSION), 0),
        ("a number without end (RFC 7541, 5.1)", [headers(b"\x7f" + b"\xff" * 20 + b"\x01")], as_protocol_error(COMPRESSION), 0),
        ("padding of a Huffman code of 8 bits (RFC 7541, 5.2)", [headers(block(get()) + b"\x00\x01x\x82\xff\xff")], as_protocol_error(COMPRESSION), 0),
        ("a string longer than its block (RFC 7541, 5.2)", [headers(b"\x00\x7fx")], as_protocol_error(COMPRESSION), 0),
        ("fields beyond the limit (6.5.2)", [headers(get(x="a" * 12_000) + [("y", "b" * 3_000)] * 1, flags=["END_HEADERS", "END_STREAM"])], "200", 1),
        ("a bomb of indexes", [headers(bomb)], ("431", *goaway(CALM)), 0),
        # 8.1: messages
        ("HEADERS twice without the end (8.1)", [opened(), opened([("x", "y")])], MALFORMED, EITHER),
        # Malformed by 8.1. The library drops such a field, so the service never receives it.
        ("trailers with a pseudo field (8.1)", [opened(), DataFrame(1, b"x"), headers([(":path", "/x")])], "200", 1),
        ("trailers in capitals (8.2.1)", [opened(), headers([("X", "y")])], MALFORMED, EITHER),
        ("a shorter body than its length (8.1.1)", [opened(post(("content-length", "5"))), DataFrame(1, b"x", flags=["END_STREAM"])], MALFORMED, EITHER),
        ("a longer one (8.1.1)", [opened(post(("content-length", "1"))), DataFrame(1, b"12345", flags=["END_STREAM"])], MALFORMED, EITHER),
        ("a longer one in pieces (8.1.1)", [opened(post(("content-length", "1"))), DataFrame(1, b"1"), DataFrame(1, b"2", flags=["END_STREAM"])], MALFORMED, EITHER),
        ("a length without a body (8.1.1)", [headers(post(("content-length", "5")))], MALFORMED, 0),
        ("a length of the right size (8.1.1)", [opened(post(("content-length", "5"))), DataFrame(1, b"12345", flags=["END_STREAM"])], "200", 1),
        ("two lengths (8.1.1)", [headers(get() + [("content-length", "0"), ("content-length", "1")])], MALFORMED, 0),
        # 8.2: fields
        ("a name in capitals (8.2.1)", [headers(get() + [("Accept", "x")])], MALFORMED, 0),
        ("a name with a space (8.2.1)", [headers(get() + [("a b", "x")])], MALFORMED, 0),
        ("a name with a colon (8.2.1)", [headers(get() + [("a:b", "x")])], MALFORMED, 0),
        ("a value with a line (8.2.1)", [headers(get() + [("a", "x\r\ny: z")])], MALFORMED, 0),
        ("a value with NUL (8.2.1)", [headers(get() + [("a", "x\0")])], MALFORMED, 0),
        *(
            (f"{name} (8.2.2)", [headers(get() + [(name, value)])], MALFORMED, 0)
            for name, value in [
                ("connection", "keep-alive"),
                ("keep-alive", "1"),
                ("proxy-connection", "close"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "websocket"),
                ("te", "gzip"),
            ]
        ),
        ("te: trailers (8.2.2)", [headers(get() + [("te", "trailers")])], "200", 1),
        ("cookies in pieces (8.2.3)", [headers(get() + [("cookie", "a=1"), ("cookie", "b=2")])], "200", 1),
        # 8.3: pseudo fields
        *(
            (f"no {name} (8.3.1)", [headers(get(**{name: None}))], MALFORMED, 0)
            for name in [":method", ":scheme", ":path"]
        ),
        ("an empty :path (8.3.1)", [headers(get(""))], MALFORMED, 0),
        ("a pseudo field behind another (8.3)", [headers(get()[:3] + [("x", "y")] + get()[3:])], MALFORMED, 0),
        ("a pseudo field twice (8.3)", [headers(get() + [(":path", "/")])], MALFORMED, 0),
        ("an unknown pseudo field (8.3)", [headers(get(**{":x": "y"}))], MALFORMED, 0),
        ("a pseudo field of answers (8.3)", [headers(get(**{":status": "200"}))], MALFORMED, 0),
        (":authority with a user (8.3.1)", [headers(get(**{":authority": f"user@{name}"}))], ("400", *MALFORMED), 0),
        (":authority and another host (8.3.1)", [headers(get() + [("host", "other.example")])], ("400", *MALFORMED), 0),
        (":authority of another name (8.3.1)", [headers(get(**{":authority": "other.example"}))], "421", 0),
        ("CONNECT with a path (8.5)", [headers(get(**{":method": "CONNECT"}))], ("400", *MALFORMED), 0),
        ("CONNECT to somewhere (8.5)", [headers([(":method", "CONNECT"), (":authority", "other.example:443")])], ("400", "421", "501", *MALFORMED), 0),
        # RFC 8441: extended CONNECT
        ("extended CONNECT to another protocol (RFC 8441)", [headers(get(**{":method": "CONNECT", ":protocol": "h2c"}), 1, ["END_HEADERS"])], ("400", "501", *MALFORMED), 0),
        (":protocol without CONNECT (RFC 8441)", [headers(get(**{":protocol": "websocket"}))], MALFORMED, 0),
    ]


def at(visited):
    """The table for the visitors of one of the names."""
    global name
    name = visited
    return rows()


def main():
    other = Other()
    for of_counted, of_other in zip(at(WORLD["counted"]), at(WORLD["other"])):
        case, frames, expected, requests = of_counted
        at(WORLD["other"])
        if requests is EITHER:
            check(case, fate(of_other[1]), expected)
        else:
            before = upstream()
            at(WORLD["counted"])
            check(case, fate(frames), expected)
            at(WORLD["other"])
            check(f"{case}: requests that reached the service", upstream() - before, requests)
        check(f"{case}: another visitor", other.get(), "200")

    # 6.5.2 (3): streams beyond the offered limit are refused, the others are not.
    frames = [opened(post(), 2 * number + 1) for number in range(300)]
    check("300 streams at once (5.1.2)", fate(frames, 599), (f"reset {REFUSED}",))
    check("a preface that is none (3.4)", no_preface(), True)
    check("others are served in the end", other.get(), "200")


def no_preface():
    with connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100)
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
        return True


main()
print(json.dumps({"ran": ran, "wrong": wrong}))
