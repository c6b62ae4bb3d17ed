"""A visitor that writes valid and invalid handshakes and frames by hand, first to the service
itself and then to its published name. Argument: JSON with

    service   host:port of the service itself
    tunnel    host:port of its published name
    ca_file   the authority of that name
    table     `frames`, `handshakes`, `ends` or `watcher`
    path      path of the service's echo, or of the engine's event stream
    early     true if it accepts frames before its 101 (`websockets` answers them too early)

A row of `frames` has the behaviour that RFC 6455 requires of the service. Some of the other rows
depend on the service, and then the answer through the tunnel must equal the service's own.

It prints the number of cases and the failed ones.
"""

import json
import socket
import ssl
import struct
import sys
import time
import urllib.request

WORLD = json.loads(sys.argv[1])
PATIENCE = 60
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MASK = b"\x01\x02\x03\x04"

ran, wrong = 0, []


def check(case, was, expected):
    global ran
    ran += 1
    if was != expected:
        wrong.append(f"{case}: {str(was)[:200]}, not {str(expected)[:200]}")


def frame(opcode, payload=b"", fin=True, rsv=0, masked=True, length=None, wide=0):
    """A frame; `length` is a false length of the payload, `wide` forces a longer encoding."""
    size = len(payload) if length is None else length
    head = bytes([fin << 7 | rsv << 4 | opcode])
    bit = masked << 7
    if size < 126 and not wide:
        head += bytes([bit | size])
    elif size < 65536 and wide < 64:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    return head + MASK + bytes(byte ^ MASK[i % 4] for i, byte in enumerate(payload))


def close(code, reason=b""):
    return frame(CLOSE, struct.pack("!H", code) + reason)


def handshake(path, request="GET {} HTTP/1.1", **changes):
    """The head of a valid handshake with some fields changed; None removes one."""
    fields = {
        "Host": WORLD["tunnel"],
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    fields.update({name.replace("_", "-"): value for name, value in changes.items()})
    lines = [request.format(path)]
    lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode()


class Tls:
    """TLS in memory: an `SSLSocket` that sends close_notify reads on and loses data."""

    def __init__(self, plain, host):
        self.plain, self.came, self.goes = plain, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.read = b""
        context = ssl.create_default_context(cafile=WORLD["ca_file"])
        self.session = context.wrap_bio(self.came, self.goes, server_hostname=host)
        while True:
            try:
                self.session.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self.fill()
            else:
                break
        self.flush()

    def flush(self):
        self.plain.sendall(self.goes.read())

    def fill(self):
        data = self.plain.recv(65536)
        if data:
            self.came.write(data)
        else:
            self.came.write_eof()

    def sendall(self, data):
        self.session.write(data)
        self.flush()

    def recv(self, most):
        while not self.read:
            try:
                return self.session.read(most)
            except ssl.SSLWantReadError:
                self.flush()
                self.fill()
        data, self.read = self.read, b""
        return data

    def end_of_data(self):
        try:
            while data := self.session.read(65536):
                self.read += data
        except ssl.SSLError:
            pass
        try:
            self.session.unwrap()
        except ssl.SSLError:
            pass
        self.flush()


class Visitor:
    """A connection to the service, or to its published name."""

    def __init__(self, published):
        host, port = WORLD["tunnel" if published else "service"].rsplit(":", 1)
        plain = socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.published, self.unread = published, b""
        self.plain = self.stream = plain
        if published:
            self.stream = Tls(plain, host)

    def send(self, data):
        try:
            self.stream.sendall(data)
        except OSError:
            pass  # What came back says why it is over.

    def more(self):
        """False at any kind of end."""
        try:
            data = self.stream.recv(65536)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        self.unread += data
        return bool(data)

    def head(self):
        """Status and fields of the answer; None without an answer."""
        while b"\r\n\r\n" not in self.unread:
            if not self.more():
                return None
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        return int(lines[0].split(" ")[1]), fields

    def frames(self):
        """Everything received until the end: each frame, then `end`."""
        while True:
            try:
                size, at = self.unread[1] & 127, 2
                if size > 125:
                    form, at = ("!H", 4) if size == 126 else ("!Q", 10)
                    (size,) = struct.unpack(form, self.unread[2:at])
                if len(self.unread) < at + size:
                    raise IndexError
            except (IndexError, struct.error):
                if self.more():
                    continue
                yield "end"
                return
            opcode, payload = self.unread[0] & 15, self.unread[at : at + size]
            self.unread = self.unread[at + size :]
            if opcode == CLOSE:
                yield f"close {struct.unpack('!H', payload[:2])[0]}" if payload else "close"
                # Answered, so that the service can close (7.1.1).
                self.send(frame(CLOSE, payload[:2]))
            else:
                names = {0: "more", TEXT: "text", BINARY: "binary", PING: "ping", PONG: "pong"}
                shown = payload.decode() if len(payload) < 20 else f"of {len(payload)}"
                yield f"{names[opcode]} {shown}"

    def end_of_data(self):
        """Closes this direction: with a close_notify if there is TLS, and the socket."""
        if self.published:
            self.stream.end_of_data()
        else:
            self.stream.shutdown(socket.SHUT_WR)

    def reset(self):
        self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.plain.close()


def both(outcome):
    """The outcome at the service itself, and at its published name."""
    return [outcome(Visitor(published)) for published in (False, True)]


def conversation(data, replies=None, pieces=False):
    """Sends the bytes and returns the replies; closes after the given number."""

    def outcome(visitor):
        visitor.send(handshake(WORLD["path"], Authorization=WORLD.get("authorization")))
        status = visitor.head()
        if status is None or status[0] != 101:
            return status
        for piece in [data[i : i + 1] for i in range(len(data))] if pieces else [data]:
            visitor.send(piece)
        came = []
        for reply in visitor.frames():
            came.append(reply)
            if len(came) == replies:
                visitor.send(BYE)
        return came

    return outcome


BYE = close(1000)
PROTOCOL_ERROR, INVALID, TOO_BIG = (["close %d" % code, "end"] for code in (1002, 1007, 1009))
GOOD = ["text hello", "close 1000", "end"]
HELLO = frame(TEXT, b"hello")

# Section 5.2 (reserved bits and codes, masks, lengths), 5.4 (fragments), 5.5 (control frames), 7.4
# (close codes), 8.1 (UTF-8).
FRAMES = [
    ("a message", HELLO, GOOD),
    ("a close without a code", frame(CLOSE), ["close", "end"]),
    ("a ping of 125", frame(PING, b"p" * 125), ["pong of 125", "close 1000", "end"]),
    ("a pong unasked", frame(PONG, b"p") + HELLO, GOOD),
    (
        "a ping between fragments",
        frame(TEXT, b"hel", fin=False) + frame(PING, b"p") + frame(0, b"lo"),
        ["pong p", *GOOD],
    ),
    (
        "UTF-8 cut by fragments",
        frame(TEXT, "é".encode()[:1], fin=False) + frame(0, "é".encode()[1:]),
        ["text é", "close 1000", "end"],
    ),
    ("invalid UTF-8", frame(TEXT, b"\xff\xfe"), INVALID),
    ("a surrogate", frame(TEXT, b"\xed\xa0\x80"), INVALID),
    ("overlong UTF-8", frame(TEXT, b"\xc0\xaf"), INVALID),
    ("UTF-8 that ends early", frame(TEXT, b"\xc3", fin=False) + frame(0, b""), INVALID),
    ("UTF-8 above U+10FFFF", frame(TEXT, b"\xf4\x90\x80\x80"), INVALID),
    *((f"reserved bits {rsv}", frame(TEXT, b"x", rsv=rsv), PROTOCOL_ERROR) for rsv in range(1, 8)),
    ("a reserved bit on a ping", frame(PING, b"x", rsv=4), PROTOCOL_ERROR),
    *((f"opcode {code}", frame(code, b"x"), PROTOCOL_ERROR) for code in [3, 4, 5, 6, 7, *range(11, 16)]),
    *((f"control frame {code} of 126", frame(code, b"x" * 126), PROTOCOL_ERROR) for code in (8, 9, 10)),
    *((f"control frame {code} in pieces", frame(code, b"", fin=False), PROTOCOL_ERROR) for code in (8, 9, 10)),
    ("an unmasked message", frame(TEXT, b"x", masked=False), PROTOCOL_ERROR),
    ("an unmasked ping", frame(PING, b"x", masked=False), PROTOCOL_ERROR),
    ("an unmasked close", frame(CLOSE, b"\x03\xe8", masked=False), PROTOCOL_ERROR),
    ("a continuation of nothing", frame(0, b"x"), PROTOCOL_ERROR),
    ("a message within a message", frame(TEXT, b"x", fin=False) + HELLO, PROTOCOL_ERROR),
    ("a close with half a code", frame(CLOSE, b"\x03"), PROTOCOL_ERROR),
    *((f"close {code}", close(code), PROTOCOL_ERROR) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)),
    ("a reason that is no UTF-8", close(1000, b"\xff"), INVALID),
    ("a message that is too large", frame(BINARY, b"", length=5 << 20), TOO_BIG),
    (
        "too large in pieces",
        frame(BINARY, b"x" * (3 << 20), fin=False) + frame(0, b"x" * (2 << 20)),
        TOO_BIG,
    ),
    ("a thousand messages at once", frame(TEXT, b"m") * 1000, ["text m"] * 1000 + GOOD[1:]),
    # The service decides what these two do, and the tunnel must not change it.
    ("a length of 63 bits and one", frame(BINARY, b"", length=1 << 63), None),
    ("a length in too long a form", frame(PING, b"hello", wide=64) + BYE, None),
    ("frames behind the close", BYE + HELLO, None),
    ("no frames at all", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
]


def frames():
    for case, data, expected in FRAMES:
        closed = expected is not None and expected[-2] == "close 1000"
        replies = len(expected) - 2 if closed else None
        direct, through = both(conversation(data, replies))
        if expected is not None:
            check(f"{case}, itself", direct, expected)
        check(case, through, direct)
    direct, through = both(conversation(HELLO, 1, pieces=True))
    check("byte by byte", [direct, through], [GOOD, GOOD])


def answer(head):
    """The status of the answer to a handshake, and True if a WebSocket follows it."""

    def outcome(visitor):
        # A frame directly after the head, before the answer, if the service accepts it.
        ping = frame(PING, b"early")
        visitor.send(head + ping if WORLD["early"] else head)
        status = visitor.head()
        if status is None:
            return "no answer"
        if status[0] != 101:
            return status[0]
        if not WORLD["early"]:
            visitor.send(ping)
        came = []
        for reply in visitor.frames():
            came.append(reply)
            if reply == "pong early":
                visitor.send(BYE)
        return came

    return outcome


# Section 4.1, as checked by the service. The last column is the result at the edge if it differs.
HANDSHAKES = [
    ("a good one", {}, None),
    ("no key", {"Sec_WebSocket_Key": None}, None),
    ("a short key", {"Sec_WebSocket_Key": "AAAA"}, None),
    ("a key that is no base64", {"Sec_WebSocket_Key": "!" * 24}, None),
    ("an old version", {"Sec_WebSocket_Version": "8"}, None),
    ("a version to come", {"Sec_WebSocket_Version": "14"}, None),
    ("no version", {"Sec_WebSocket_Version": None}, None),
    ("a token in capitals", {"Upgrade": "WebSocket", "Connection": "keep-alive, Upgrade"}, None),
    ("no token", {"Upgrade": None}, None),
    ("no option of the connection", {"Connection": "keep-alive"}, None),
    ("another protocol", {"Upgrade": "other"}, None),
    # RFC 9110, 7.8: HTTP/1.0 has no upgrades, so the service receives a plain request.
    ("HTTP/1.0", {"request": "GET {} HTTP/1.0"}, 426),
    ("POST", {"request": "POST {} HTTP/1.1", "Content_Length": "0"}, None),
    ("another origin", {"Origin": "https://elsewhere.example"}, None),
    ("an unknown extension", {"Sec_WebSocket_Extensions": "x-unknown; a=1"}, None),
]


def handshakes():
    for case, changes, otherwise in HANDSHAKES:
        direct, through = both(answer(handshake(WORLD["path"], **changes)))
        check(case, through, direct if otherwise is None else otherwise)


def seen(name):
    """The bytes that the service received, as soon as they are known."""
    url = f"http://{WORLD['service']}/seen?{name}"
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        known = json.loads(urllib.request.urlopen(url).read())
        if known is not None:
            return known
        time.sleep(0.01)
    return None


def scripted(path, data=b"", end=False):
    def outcome(visitor):
        visitor.send(handshake(path) + data)
        status = visitor.head()
        if status is None:
            return "no answer"
        if status[0] != 101:
            return status
        if end:
            visitor.end_of_data()
        return status[1], [*visitor.frames()]

    return outcome


def ends():
    """Answers byte by byte, and directions that end one after the other or together."""
    upgraded = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    }
    direct, through = both(scripted("/refuse"))
    check("a service that refuses", [direct[0], through[0]], [403, 403])
    visitor = Visitor(True)
    visitor.send(handshake("/refuse"))
    visitor.head()
    while len(visitor.unread) < 9 and visitor.more():
        pass
    check("its reason", visitor.unread, b"not today")

    direct, through = both(scripted("/version"))
    for name in ["sec-websocket-version", "upgrade"]:
        # RFC 6455, 4.4; RFC 9110, 15.5.22: a 426 names the protocol in `Upgrade`.
        check(f"a service that wants another version: {name}", through[1].get(name), direct[1][name])
    check("426", through[0], 426)

    wrong_accept = {**upgraded, "sec-websocket-accept": "bm90IHlvdXJzIGF0IGFsbCEhISE="}
    direct, through = both(scripted("/accept"))
    check("a wrong Sec-WebSocket-Accept, from the service itself", direct, (wrong_accept, ["end"]))
    check("a wrong one changes no protocol at the edge", through[0], 502)

    direct, through = both(scripted("/glued", end=True))
    check("a message glued to the 101", through, (upgraded, ["text hello", "end"]))
    check("a glued one, itself", direct, through)
    # The service echoes raw bytes, including masks. An empty mask keeps them readable.
    early = b"\x81\x05early"
    direct, through = both(scripted("/glued", early, end=True))
    check("frames before the 101", through, (upgraded, ["text hello", "text early", "end"]))
    check("frames before it, itself", direct, through)
    direct, through = both(scripted("/slow", early, end=True))
    check("a 101 byte by byte", through, (upgraded, ["text early", "end"]))
    check("a slow one, itself", direct, through)

    direct, through = both(scripted("/half", early, end=True))
    whole = (upgraded, ["text early", f"binary of {1 << 20}", "end"])
    check("half closed by the visitor", through, whole)
    check("half closed, itself", direct, whole)

    for published in (False, True):
        visitor = Visitor(published)
        name = f"ends{published}"
        visitor.send(handshake(f"/ends?{name}"))
        check("an end of the service", visitor.head()[0], 101)
        check("its end arrives", visitor.more(), False)
        visitor.send(HELLO)
        visitor.end_of_data()
        check("half closed by the service", seen(name), HELLO.hex())
    direct, through = both(scripted("/resets"))
    check("a service that breaks off", through[1][-1:], ["end"])
    direct, through = both(scripted("/never"))
    check("a service that breaks off at once", [direct, through[0]], ["no answer", 502])


def watcher():
    """The engine's own WebSocket, which starts with a message and accepts none above 4 KiB."""
    def outcome(data, replies=None):
        came = conversation(data, replies)(Visitor(True))
        came = came if isinstance(came, list) else [came]
        return ["hello", *came[1:]] if str(came[0]).startswith("text of ") else came

    check("a close of the client", outcome(close(1000)), ["hello", "close 1000", "end"])
    check("a close of its own", outcome(close(4999, b"done")), ["hello", "close 4999", "end"])
    check("a close without a code", outcome(frame(CLOSE)), ["hello", "close", "end"])
    check("a message, which it ignores", outcome(HELLO, 1), ["hello", "close 1000", "end"])
    pinged = ["hello", "pong p", "close 1000", "end"]
    check("a ping", outcome(frame(PING, b"p"), 2), pinged)
    between = frame(TEXT, b"hel", fin=False) + frame(PING, b"p") + frame(0, b"lo")
    check("a ping between fragments", outcome(between, 2), pinged)
    for case, data, expected in FRAMES:
        if expected in (PROTOCOL_ERROR, INVALID):
            check(case, outcome(data), ["hello", *expected])
    check("too large", outcome(frame(TEXT, b"x" * 4097)), ["hello", *TOO_BIG])
    pieces = frame(TEXT, b"x" * 4096, fin=False) + frame(0, b"x")
    check("too large in pieces", outcome(pieces), ["hello", *TOO_BIG])


{"watcher": watcher, "frames": frames, "handshakes": handshakes, "ends": ends}[WORLD["table"]]()
print(json.dumps({"ran": ran, "wrong": wrong}))
