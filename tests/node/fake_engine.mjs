// The engine of a project, as seen by its pages: the Engine API of terminals, the tunnels, and one
// server with an echo shell. It follows docs/webtty-protocol.md and the API schemas, and records
// its requests.

import assert from "node:assert/strict";
import { createServer } from "node:https";
import { createRequire } from "node:module";

import { NOTICE, SIGNAL, STREAM, decode, encode } from "../../crates/control/src/pages/terminal/webtty.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { WebSocketServer } = require("ws");

const MANAGES = "network.webtty-servers.read-write";
const text = (bytes) => Buffer.from(bytes).toString();

export class FakeEngine {
  constructor({ given, url }) {
    this.given = given;
    this.platform = url;
    this.sessions = new Map();
    this.tokens = [];
    this.published = `shell-${given.endpoint}.t.${given.domain}`;
  }

  async start() {
    const { certificate, key } = this.given;
    const server = createServer({ cert: certificate, key }, (request, response) => {
      this.#answer(request, response).catch((error) => {
        console.error(error);
        response.writeHead(500).end();
      });
    });
    const sockets = new WebSocketServer({ noServer: true });
    server.on("upgrade", (request, socket, head) => {
      sockets.handleUpgrade(request, socket, head, (opened) => this.#stream(request, opened));
    });
    // The test reserves its port, gives it to the platform, and passes the socket as standard
    // input.
    await new Promise((listening) => server.listen({ fd: 0 }, listening));
    this.server = server;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  /** Claims of a bearer. This engine trusts it, and the real one verifies it. */
  #claims(token) {
    const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
    this.tokens.push(claims);
    return claims;
  }

  async #answer(request, response) {
    assert.equal(request.headers.origin, this.platform);
    const cors = {
      "access-control-allow-origin": this.platform,
      "access-control-allow-headers": "authorization, content-type",
      "access-control-allow-methods": "GET, POST, DELETE",
      vary: "origin",
    };
    if (request.method === "OPTIONS") return response.writeHead(204, cors).end();
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length ? JSON.parse(Buffer.concat(chunks)) : undefined;
    const { authorization = "" } = request.headers;
    assert.equal(request.headers.cookie, undefined, "a cookie came to the engine");
    const claims = this.#claims(authorization.replace("Bearer ", ""));
    this.#isJudged(request.url, claims);
    const [status, value] = this.#api(request.method, new URL(request.url, "https://x"), body, claims);
    const type = status < 400 ? "application/json" : "application/problem+json";
    response.writeHead(status, { ...cors, "content-type": type });
    response.end(value === undefined ? "" : JSON.stringify(value));
  }

  /** Sessions of a restricted server can be read with a token for its tunnel. */
  #isJudged(url, { permissions, resources }) {
    const manages = permissions.includes(MANAGES);
    const { scopes } = resources.tunnels;
    const of = { filters: { id: "tun_1" } };
    if (manages) assert.deepEqual(scopes, { tunnels: { list: of, connect: of } });
    else assert.equal(scopes, undefined);
    const joins = /^\/api\/webtty\/sessions\/[^/]+\/participants/.test(url);
    if (joins) assert.equal(manages, Boolean(this.restricted), url);
  }

  #api(method, url, body, { userId: user, permissions }) {
    const params = JSON.parse(url.searchParams.get("params") ?? "{}");
    if (url.pathname === "/api/tunnels") return [200, this.#tunnels()];
    const [, , , kind, id, what, which] = url.pathname.split("/").map(decodeURIComponent);
    const missing = [404, { title: "Not found", detail: "There is no such session.", code: "not_found" }];
    if (kind !== "sessions") return missing;
    if (!id) return [200, [...this.sessions.values()].map((session) => session.shown())];
    const session = this.sessions.get(id);
    if (!session) return missing;
    if (!what && method === "DELETE") return [204, session.end(143)];
    if (!what) return [200, session.shown()];
    if (what === "events") {
      const from = Number(params.from_seq ?? 1);
      return [200, session.events.slice(from - 1, from - 1 + (params.limit ?? 100))];
    }
    if (what === "participants" && method === "GET") {
      return [200, [...session.people.values()].map((person) => session.person(person))];
    }
    if (what === "participants" && !which) return [200, session.invite(user, body)];
    if (what === "participants") {
      const person = session.people.get(which);
      if (!person?.socket) return missing;
      return [200, session.leave(which, person.user !== user)];
    }
    if (method === "GET") return [200, [...session.requests.values()]];
    if (!which) return session.ask(body);
    const owns = user === session.user || permissions.includes("webtty.logs.read-only");
    return session.resolve(which, body.action, { participant: body.approver_participant_id, owns });
  }

  #tunnels() {
    const labels = {
      "svc.webtty.server_id": "wsv_1",
      "svc.webtty.server_name": "web-1",
      "svc.webtty.os_pretty_name": "Debian",
      "svc.webtty.exec.path": "/%7Eshell/a%20b?c",
    };
    const common = { client_id: "cli_1", status: "online" };
    const secret = { "application-protocol": "svc.webtty" };
    // The real engine only checks the labels of `webtty` tunnels. All others may claim anything.
    const posing = { ...secret, ...labels, "svc.webtty.os_pretty_name": "Impostor" };
    const absent = { ...posing, "svc.webtty.server_id": "wsv_2", "svc.webtty.server_name": "web-2" };
    const open = { ...common, publish: true, hostname: "w.t.x" };
    return [
      { ...open, id: "tun_4", name: "posing", protocol: "http", labels: posing },
      { ...open, id: "tun_5", name: "wsv_2", protocol: "http", labels: absent },
      { ...open, id: "tun_6", name: "bytes", protocol: "tls", labels: posing },
      { ...open, id: "tun_1", name: "wsv_1", protocol: "webtty", hostname: this.published, labels },
      { ...common, id: "tun_2", name: "inside", publish: false, labels: secret },
      { ...open, id: "tun_3", name: "web", protocol: "http", labels: {} },
    ];
  }

  #stream(request, socket) {
    const url = new URL(request.url, "https://x");
    assert.equal(request.headers.origin, this.platform);
    const [host] = request.headers.host.split(":");
    if (host === this.published) {
      const claims = this.#claims(url.searchParams.get("svc.token"));
      assert.equal(url.searchParams.get("session_mode"), "interactive");
      assert.equal(url.pathname, "/~shell/a%20b%3Fc");
      const connect = { filters: { id: "tun_1" }, params: { path: url.pathname } };
      const scopes = { tunnels: { connect } };
      const more = this.restricted ? [MANAGES] : [];
      assert.deepEqual(claims.permissions, [...more, "tunnels.streams.create-delete"]);
      assert.deepEqual(claims.resources, { tunnels: { projects: [this.given.project], scopes } });
      assert.ok(claims.exp - claims.iat <= 60, "a long life for a token in an address");
      const session = new Session(this, claims.userId);
      this.sessions.set(session.id, session);
      session.connect(session.opener, socket);
      return;
    }
    // The grant authenticates the client, not the address.
    assert.equal(url.search, "");
    const [, , , , id, , which] = url.pathname.split("/");
    const session = this.sessions.get(id);
    socket.once("message", (bytes, isBinary) => {
      assert.ok(isBinary);
      const attach = decode(bytes);
      assert.equal(attach.kind, "attach");
      assert.equal(text(attach.attachGrant), `grant of ${which}`);
      assert.deepEqual([attach.sessionId, attach.participantId], [id, which]);
      session.connect(session.people.get(which), socket);
      session.snapshot(which);
    });
  }
}

let made = 0;

class Session {
  constructor(engine, user) {
    made += 1;
    this.engine = engine;
    this.id = `wts_${made}`;
    this.people = new Map();
    this.requests = new Map();
    this.events = [];
    this.output = "";
    this.line = "";
    this.input = "";
    this.status = "active";
    this.started = new Date();
    this.user = user;
    this.opener = this.#add(user);
    this.controller = this.opener.id;
    this.size = { row: 24, col: 80 };
  }

  shown() {
    const isLive = this.status === "active";
    return {
      id: this.id,
      server_id: "wsv_1",
      tunnel_id: "tun_1",
      initiator_user_id: this.user,
      status: this.status,
      session_mode: "interactive",
      recording_mode: "recorded",
      encryption_mode: "managed",
      started_at: this.started.toISOString(),
      ...(isLive ? {} : { exit_code: this.code, ...this.error }),
      live: {
        available: isLive,
        attachable: isLive,
        participant_count: this.people.size,
        controller_participant_id: this.controller,
        has_upstream: isLive,
      },
    };
  }

  person({ id, user, socket }) {
    const controller = this.controller === id;
    return {
      id,
      session_id: this.id,
      user_id: user,
      role: controller ? "controller" : "spectator",
      attached_at: this.started.toISOString(),
      controller,
      live: { connected: Boolean(socket), controller },
    };
  }

  invite(user, body) {
    assert.deepEqual(body, { role: "spectator", transport: "websocket" });
    const person = this.#add(user);
    const grant = Buffer.from(`grant of ${person.id}`).toString("base64");
    return { ...this.person(person), attach_grant: grant };
  }

  connect(person, socket) {
    person.socket = socket;
    // The opener replaces their lost stream.
    if (!this.opener.socket && person.user === this.user) this.opener = person;
    socket.on("message", (bytes) => this.#hear(person, decode(bytes)));
    socket.on("close", () => this.leave(person.id));
    if (person !== this.opener) this.#others(person.id, NOTICE.joined);
  }

  snapshot(id) {
    this.#notice(id, { kind: NOTICE.snapshot, size: this.size });
    this.#send(id, "data", { type: STREAM.stdout, data: Buffer.from(this.output) });
  }

  leave(id, kicked) {
    const person = this.people.get(id);
    if (!person?.socket) return {};
    if (kicked) this.#notice(id, { kind: NOTICE.kicked });
    person.socket.close();
    person.socket = undefined;
    if (this.controller === id) this.#returns();
    this.#others(id, NOTICE.left);
    return this.person(person);
  }

  /** The time to reconnect is over. */
  abandon() {
    this.end(129);
    this.error = { error_code: "abandoned", error_message: "no client returned to the session" };
  }

  ask({ participant_id: asker, reason, control_seconds: seconds }) {
    const id = `wtc_${this.requests.size + 1}`;
    const now = new Date().toISOString();
    const person = this.people.get(asker);
    const request = {
      id,
      session_id: this.id,
      requester_participant_id: asker,
      requester_user_id: person.user,
      status: "pending",
      reason,
      control_seconds: seconds,
      created_at: now,
      updated_at: now,
    };
    this.requests.set(id, request);
    if (!this.controller && person.user === this.user) {
      request.status = "granted";
      this.controller = asker;
      this.#notice(asker, { kind: NOTICE.granted, participantId: asker, requestId: id });
      return [201, request];
    }
    this.#notice(this.controller, {
      kind: NOTICE.requested,
      participantId: asker,
      requestId: id,
      user: person.user,
      reason: reason ?? "",
    });
    return [200, request];
  }

  /** A named participant is checked as that participant only, whatever else its user owns. */
  resolve(id, action, { participant, owns }) {
    const request = this.requests.get(id);
    if (!request) return [404, { detail: "not found" }];
    const gave = [request.approver_participant_id, this.opener.id].includes(participant);
    const withdraws = action === "revoke" && request.requester_participant_id === participant;
    const answers = this.controller === participant || (action === "revoke" && gave) || withdraws;
    if (participant ? !answers : !owns) return [403, { detail: "This is not allowed.", code: "not_allowed" }];
    const asker = request.requester_participant_id;
    const about = { participantId: asker, requestId: id };
    if (action === "grant") {
      if (!this.#revokes()) this.#notice(this.controller, { kind: NOTICE.revoked });
      request.status = "granted";
      request.approver_participant_id = participant;
      this.controller = asker;
      this.#notice(asker, { kind: NOTICE.granted, ...about });
      this.#others(asker, NOTICE.granted);
    } else if (action === "refuse") {
      request.status = "refused";
      this.#unanswered(about, NOTICE.refused);
    } else if (request.status === "pending") {
      request.status = "revoked";
      this.#unanswered(about, NOTICE.revoked);
    } else {
      this.#returns();
    }
    return [200, request];
  }

  /** A pending request has ended without a grant. The participant in control can no longer answer it. */
  #unanswered(about, kind) {
    this.#notice(about.participantId, { kind, ...about });
    const user = this.people.get(about.participantId)?.user ?? "";
    if (this.controller) this.#notice(this.controller, { kind, ...about, user });
  }

  /** Revokes the control that a request granted. Returns true if it had granted any. */
  #revokes() {
    const held = [...this.requests.values()].find((request) => request.status === "granted");
    if (!held) return false;
    held.status = "revoked";
    const asker = held.requester_participant_id;
    this.#notice(asker, { kind: NOTICE.revoked, participantId: asker, requestId: held.id });
    return true;
  }

  /** Control returns to the opener of the session, if they are connected. */
  #returns() {
    this.#revokes();
    const { id, socket } = this.opener;
    this.controller = socket && this.controller !== id ? id : undefined;
    if (!this.controller) return;
    this.#others(id, NOTICE.granted);
    this.#notice(id, { kind: NOTICE.granted, participantId: id });
  }

  #add(user) {
    const person = { id: `wtp_${this.id}_${this.people.size + 1}`, user };
    this.people.set(person.id, person);
    return person;
  }

  #hear(person, message) {
    const controls = this.controller === person.id;
    switch (message.kind) {
      case "open":
        assert.deepEqual(message.config.options, { interactive: true, allocateTty: true, sendHeartbeat: true });
        this.size = message.session.size;
        this.#event("open", { metadata: { terminal_size: { row: this.size.row, col: this.size.col } } });
        this.#send(person.id, "ack", { session: { features: [1], sessionId: this.id, graceSeconds: 600 } });
        this.#write("$ ");
        break;
      case "data":
        assert.equal(message.type, STREAM.stdin);
        if (controls) this.#typed(text(message.data));
        if (controls) this.input += text(message.data);
        break;
      case "parameter":
        if (controls) this.#resize(message.terminalSize);
        break;
      case "heartbeat":
        if (message.decision) {
          const { requestId, grant } = message.decision;
          this.resolve(requestId, grant ? "grant" : "refuse", { participant: person.id });
        }
        if (message.signal === SIGNAL.HUP) this.end(129);
        if (message.signal === SIGNAL.INT) this.#write("^C\r\n$ ");
        break;
      default:
        assert.fail(`a page sent ${message.kind}`);
    }
  }

  #resize({ row, col }) {
    if (row === this.size.row && col === this.size.col) return;
    this.size = { row, col };
    this.#event("resize", { metadata: { terminal_size: { row, col } } });
    for (const id of this.people.keys()) this.#notice(id, { kind: NOTICE.resized, size: this.size });
  }

  #typed(input) {
    // Tab has no completions here.
    for (const key of input.replaceAll("\t", "")) {
      if (key !== "\r") {
        this.line += key;
        this.#write(key);
        continue;
      }
      const line = this.line;
      this.line = "";
      if (line === "exit") return this.end(0);
      this.#write(`\r\n${PROGRAMS[line] ?? `${line}: said`}\r\n$ `);
    }
  }

  #write(output) {
    this.output += output;
    const data = Buffer.from(output);
    this.#event("data", { stream_type: "stdout", payload_plaintext: data.toString("base64") });
    for (const id of this.people.keys()) this.#send(id, "data", { type: STREAM.stdout, data });
  }

  /** A large output, which the recording does not have. */
  flood(output) {
    const size = 16 * 1024;
    for (let at = 0; at < output.length; at += size) {
      const data = Buffer.from(output.slice(at, at + size));
      for (const id of this.people.keys()) this.#send(id, "data", { type: STREAM.stdout, data });
    }
  }

  end(code) {
    this.status = "closed";
    this.code = code;
    this.#event("close", { metadata: { exit_code: code } });
    for (const [id, person] of this.people) {
      // A server may report the end by request as an error.
      if (this.fault) this.#send(id, "error", { msg: this.fault });
      else this.#send(id, "close", { returnCode: code, termination: { reason: 1 } });
      person.socket?.close(1000, "finished");
    }
  }

  #event(type, more) {
    const seq = String(this.events.length + 1);
    this.events.push({ id: `e${seq}`, session_id: this.id, seq, created_at: new Date().toISOString(), type, ...more });
  }

  #others(about, kind) {
    const { user } = this.people.get(about);
    for (const id of this.people.keys()) {
      if (id !== about) this.#notice(id, { kind, participantId: about, user });
    }
  }

  #notice(id, notice) {
    this.#send(id, "heartbeat", { notice });
  }

  #send(id, kind, fields) {
    this.people.get(id).socket?.send(encode(kind, fields));
  }
}

/** Output of programs. */
const PROGRAMS = {
  // Bracketed paste.
  brackets: "\x1b[?2004h",
  plain: "\x1b[?2004l",
  // Wide characters, capitals, and a line that is longer than a row.
  words: `世界 Needle needle ${"long ".repeat(60)}NEEDLE`,
  address: "see https://example.com/a_(b), or more",
  colours: "\x1b[31mred\x1b[m \x1b[33myellow\x1b[m \x1b[36;2mfaint\x1b[m \x1b[7mreverse\x1b[m \x1b[44mblue\x1b[m",
  // A selection, titles, an invalid link, a link, and queries that a terminal answers.
  attack:
    "\x1b]52;c;c3RvbGVu\x07\x1b]0;<img src=x onerror=alert(1)>\x07\x1b]2;stolen title\x07" +
    "\x1b]8;;javascript:alert(1)\x07trap\x1b]8;;\x07 \x1b]8;;https://example.com/\x07link\x1b]8;;\x07" +
    "\x1b[c\x1b[6n\x1b[21t\x1b]1337;File=inline=1:AAAA\x07 harmless",
};
