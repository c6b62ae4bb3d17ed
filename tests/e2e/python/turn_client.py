"""A TURN client that sends arbitrary requests, for tests that a well-behaved client cannot do.

Commands are JSON, one per line, and each is answered by one line:

    {"allocate": name, "username": u, "password": p, "transport": "udp"|"tcp"|"tls"}  {"code": 0}
    {"echo": [from, to], "bytes": n}     {"echoed": n}: through both relays and back
    {"refresh": name}                    {"code": 0}
    {"ended": name, "within": seconds}   {"ended": seconds}: until a Refresh finds no allocation
    {"derive": "pat"|"app", ...}         {"username", "credential"}
"""

import base64
import hashlib
import hmac
import json
import os
import socket
import ssl
import struct
import sys
import time

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

MAGIC = 0x2112A442
HOST, PORT, TLS_PORT = os.environ["TURN_HOST"], int(os.environ["TURN_PORT"]), int(os.environ["TURN_TLS_PORT"])
PATIENCE = 60


def attribute(kind, value):
    return struct.pack("!HH", kind, len(value)) + value + b"\0" * (-len(value) % 4)


class Client:
    def __init__(self, username, password, transport):
        if transport == "udp":
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.connect((HOST, PORT))
        else:
            port = TLS_PORT if transport == "tls" else PORT
            self.socket = socket.create_connection((HOST, port), PATIENCE)
            if transport == "tls":
                trust = ssl.create_default_context(cafile=os.environ["TURN_CA_FILE"])
                self.socket = trust.wrap_socket(self.socket, server_hostname=HOST)
        self.socket.settimeout(PATIENCE)
        self.is_stream, self.rest = transport != "udp", b""
        self.username, self.password = username.encode(), password.encode()
        self.realm = self.nonce = None

    def read(self):
        if not self.is_stream:
            return self.socket.recv(65536)
        while True:
            if len(self.rest) >= 4:
                kind, length = struct.unpack_from("!HH", self.rest)
                whole = 20 + length if kind < 0x4000 else 4 + length + -length % 4
                if len(self.rest) >= whole:
                    message, self.rest = self.rest[:whole], self.rest[whole:]
                    return message
            piece = self.socket.recv(65536)
            if not piece:
                raise EOFError
            self.rest += piece

    def ask(self, method, attributes):
        """The code of the answer, 0 for success, and its attributes."""
        for _ in range(3):
            body = attributes
            if self.nonce:
                body += attribute(6, self.username) + attribute(0x14, self.realm) + attribute(0x15, self.nonce)
                key = hashlib.md5(b":".join([self.username, self.realm, self.password])).digest()
            transaction = os.urandom(12)
            if self.nonce:
                head = struct.pack("!HHI", method, len(body) + 24, MAGIC) + transaction
                body += attribute(8, hmac.new(key, head + body, hashlib.sha1).digest())
            self.socket.sendall(struct.pack("!HHI", method, len(body), MAGIC) + transaction + body)
            code, found = self.answer(transaction)
            if code == 438 or (code == 401 and not self.nonce):
                self.realm, self.nonce = found[0x14], found[0x15]
                continue
            return code, found
        return code, found

    def answer(self, transaction):
        while True:
            message = self.read()
            if message[0] < 0x40 and message[8:20] == transaction:
                break
        kind, length = struct.unpack_from("!HH", message)
        found, at = {}, 20
        while at < 20 + length:
            name, size = struct.unpack_from("!HH", message, at)
            found[name] = message[at + 4 : at + 4 + size]
            at += 4 + size + -size % 4
        code = found[9][2] * 100 + found[9][3] if kind & 0x110 == 0x110 else 0
        return code, found

    def allocate(self):
        code, found = self.ask(3, attribute(0x19, b"\x11\0\0\0"))
        if code == 0:
            port, ip = struct.unpack_from("!HI", found[0x16], 2)
            self.relayed = (port ^ (MAGIC >> 16), ip ^ MAGIC)
        return code

    def refresh(self, seconds=600):
        return self.ask(4, attribute(0xD, struct.pack("!I", seconds)))[0]

    def bind(self, peer):
        port, ip = peer
        address = struct.pack("!BBHI", 0, 1, port ^ (MAGIC >> 16), ip ^ MAGIC)
        return self.ask(9, attribute(0xC, b"\x40\0\0\0") + attribute(0x12, address))[0]

    def send(self, data):
        padding = b"\0" * (-len(data) % 4) if self.is_stream else b""
        self.socket.sendall(struct.pack("!HH", 0x4000, len(data)) + data + padding)

    def receive(self):
        while True:
            message = self.read()
            if message[0] == 0x40:
                return message[4 : 4 + struct.unpack_from("!H", message, 2)[0]]


def expand(secret, realm, purpose):
    """HKDF-SHA256 (RFC 5869), 32 bytes."""
    key = hmac.new(realm.encode(), secret, hashlib.sha256).digest()
    return hmac.new(key, purpose + b"\x01", hashlib.sha256).digest()


def derive(kind, endpoint, subject, realm, ttl, token=None, private_key=None, relay_key=None):
    username = f"v1:{int(time.time()) + ttl}:{kind}:{endpoint}:{subject}"
    if kind == "pat":
        secret = hashlib.sha256(token.encode()).digest()
    else:
        own = serialization.load_pem_private_key(private_key.encode(), None)
        relay = serialization.load_der_public_key(bytes.fromhex(relay_key))
        secret = own.exchange(ec.ECDH(), relay)
    key = expand(secret, realm, f"turn-{kind}-v1".encode())
    credential = base64.b64encode(hmac.new(key, username.encode(), hashlib.sha256).digest()).decode()
    return {"username": username, "credential": credential}


def main():
    clients = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "derive" in order:
            result = derive(order.pop("derive"), **order)
        elif "keypair" in order:
            key = ec.generate_private_key(ec.SECP521R1())
            private = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            result = {"private_key": private.decode(), "public_key": public.decode()}
        elif "allocate" in order:
            client = Client(order["username"], order["password"], order.get("transport", "udp"))
            clients[order["allocate"]] = client
            result = {"code": client.allocate()}
        elif "refresh" in order:
            result = {"code": clients[order["refresh"]].refresh()}
        elif "peer" in order:
            ip = struct.unpack("!I", socket.inet_aton(order["address"]))[0]
            result = {"code": clients[order["peer"]].bind((order["port"], ip))}
        elif "echo" in order:
            one, other = (clients[name] for name in order["echo"])
            result = {"codes": [one.bind(other.relayed), other.bind(one.relayed)], "echoed": 0}
            for size in range(order["bytes"]):
                data = os.urandom(size)
                one.send(data)
                if other.receive() != data:
                    break
                other.send(data)
                result["echoed"] += one.receive() == data
        elif "ended" in order:
            client, begun = clients[order["ended"]], time.monotonic()
            while time.monotonic() - begun < order["within"]:
                # The error differs from the one for an unknown username.
                client.username, before = b"v1:1:api:00000000:nobody", client.username
                code = client.refresh()
                client.username = before
                if client.refresh() != 0:
                    break
            result = {"ended": time.monotonic() - begun, "code": client.refresh()}
        print(json.dumps(result), flush=True)


main()
