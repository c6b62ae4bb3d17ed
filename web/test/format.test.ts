import assert from "node:assert/strict";
import { test } from "node:test";
import { accessRules, sentence } from "../src/format/access";
import { ruleSentence, ruleStep } from "../src/format/advice";
import { linksByAddress } from "../src/format/links";
import { costText, isPossible, limitText } from "../src/format/plan";
import { agentSettings } from "../src/format/settings";
import { opensWithToken, tokenLink, visitorCredential, ways } from "../src/format/share";
import { bytes, csv, millis, price, rate, relative, words } from "../src/format/text";
import { readVisit, statusClass } from "../src/format/visit";
import { boundaryText, NO_BOUNDARY, parseResources, resources } from "../src/pages/credentials/boundary";
import { browserLink, visitAddress } from "../src/pages/address";
import { filterTunnels, hasLabel } from "../src/pages/project/filter";
import { formatLabels, parseLabels, parseList } from "../src/pages/project/labels";
import { find } from "../src/shell/find";

test("numbers have units and few digits", () => {
  assert.deepEqual([0, 1023, 1536, 5 * 1024 ** 3].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
  assert.deepEqual([1, 1500, 61_000].map(millis), ["1 ms", "1.50 s", "1 min"]);
  assert.equal(millis(undefined), "–");
  assert.deepEqual([0, 0.01, 1.26, 1234].map(rate), ["0", "<0.1", "1.3", "1,234"]);
  assert.equal(price(1900, "EUR"), "€19.00");
  assert.equal(price(1900, "JPY"), "¥1,900");
  assert.equal(relative(0, 180_000), "3 min ago");
  assert.equal(relative(7_200_000, 0), "in 2 h");
  assert.equal(words("webhook.secret_rotated"), "Webhook secret rotated");
});

test("a plan change shows its cost, its limits and what blocks it", () => {
  const money = (amountMinor: number) => ({ amountMinor, currency: "EUR" });
  const impact = { type: "prorated_charge", label: "x", description: "y", billingEnabled: true, price: money(1500), recurring: { ...money(3000), interval: "month" } } as const;
  assert.equal(costText(impact), "€15.00 now, then €30.00 per month");
  assert.equal(costText({ type: "none", label: "x", description: "y", billingEnabled: true }), "free of charge");
  const domains = { limit: "domains", from: 100, to: 10, used: 12, effect: "remove_first" } as const;
  assert.deepEqual(limitText(domains), { name: "Custom domains", from: "100", to: "10", effect: "12 in use. Remove the excess first.", isBlocking: true });
  const bandwidth = limitText({ limit: "bytes_per_second", to: 1024 ** 2, effect: "slows" });
  assert.deepEqual([bandwidth.from, bandwidth.to], ["no limit", "1.0 MiB/s"]);
  assert.equal(limitText({ limit: "webhooks", from: 0, used: 0, effect: "none" }).to, "included");
  const preview = { projectId: "prj_1", from: "pro", to: "basic", available: true, billingImpact: impact, limits: [], changeFingerprint: "f" } as const;
  assert.ok(isPossible({ ...preview, limits: [] }));
  assert.ok(!isPossible({ ...preview, limits: [domains] }));
  assert.ok(!isPossible({ ...preview, limits: [], setupUrl: "https://svc.example/billing/setup" }));
  assert.ok(!isPossible({ ...preview, limits: [], available: false }));
});

test("cells of an export are never formulas", () => {
  assert.equal(csv([["=1+1", '@x,"y"', "-2", "plain"]]), `'=1+1,"'@x,""y""",'-2,plain\r\n`);
});

test("the access sentence states who may visit", () => {
  assert.match(sentence({ publish: false }, undefined), /^Private/);
  assert.equal(sentence({ publish: true }, undefined), "Any visitor with the address is admitted.");
  assert.equal(sentence({ publish: true, token_auth: true, svc_auth: true, trusted_ips: ["192.0.2.0/24"] }, undefined), "Visitors must sign in as a member of the workspace or send a token, from 192.0.2.0/24.");
  const settings = { publicAccessPolicy: "auth-required", publishedTcpEnabled: true } as const;
  assert.match(sentence({ publish: true }, settings), /^No visitor is admitted/);
  assert.ok(accessRules({ publish: true, token_auth: true }, settings).some((rule) => rule.owner === "project"));
  // `identity` admits no one: the service receives these fields of visitors that have signed in.
  assert.equal(sentence({ publish: true, svc_auth: true, identity: ["email"] }, undefined), "Visitors must sign in as a member of the workspace.");
});

test("each setting of an agent has the option that changes it", () => {
  const settings = agentSettings({ name: "shop", protocol: "http", upstream_tls: true, time_to_first_byte_seconds: 30, identity: ["email", "name"], labels: { team: "web", "<b>": "x" } });
  assert.deepEqual(
    settings.map(({ value, option }) => `${option} ${value}`),
    ["--name shop", "--protocol http", "--upstream-tls yes", "--time-to-first-byte 30 s", "--identity email, name", "--label team=web, <b>=x"],
  );
  const changes = accessRules({ publish: false, geo_ip: ["CH"], tls_min_version: "tls1.3" }, undefined).map((rule) => rule.change);
  assert.deepEqual(changes, ["--no-publish", "--geoip", "--tls-min-version"]);
});

test("a visit is read with distrust", () => {
  const event = { eventId: "log_1", eventType: "stream.summary", eventCategory: "stream_log", projectId: "p", workspaceId: "w", createdAt: "2026-01-01T00:00:00Z", expiresAt: "2026-01-02T00:00:00Z" } as const;
  for (const payload of [{}, { firewall: 7, response: null }, { request: { http: { request: { path: 9 } } } }]) {
    const visit = readVisit({ ...event, payload });
    assert.equal(visit.path, undefined);
    assert.equal(visit.status, undefined);
  }
  const denied = readVisit({ ...event, payload: { firewall: { decision: "denied", rule: { kind: "none" }, explanation: { rule: "token", sentence: "Visitors need a token.", status: 401 } } } });
  assert.equal(denied.outcome, "denied");
  assert.equal(denied.status, 401);
  assert.equal(denied.sentence, "Visitors need a token.");
  assert.equal(denied.step, ruleStep("token"));
  const unknown = readVisit({ ...event, payload: { routing: { explanation: { rule: "unknown", problem: "tunnel_not_found", status: 404 } } } });
  assert.equal(unknown.sentence, ruleSentence("unknown"));
  assert.notEqual(unknown.step, undefined);
  assert.equal(ruleStep("constructor"), undefined);
  assert.equal(statusClass(204), "2xx");
});

test("only https addresses become links", () => {
  assert.equal(browserLink({ publish: true, host: "a.example:443" }), "https://a.example");
  assert.equal(visitAddress({ publish: true, protocol: "tcp", host: "a.example:20000" }), "tcp://a.example:20000");
  assert.equal(browserLink({ publish: true, protocol: "tcp", host: "a.example:20000" }), undefined);
  assert.equal(visitAddress({ publish: false, host: "a.example" }), undefined);
});

test("tunnels are found by text, protocol, visibility and label", () => {
  const tunnels = [
    { id: "tun_2", name: "web", publish: true, labels: { env: "prod" } },
    { id: "tun_1", name: "db", protocol: "tcp" as const, publish: false },
  ];
  const none = { search: "", protocol: "", visibility: "", label: "" };
  assert.equal(filterTunnels(tunnels, none), tunnels, "nothing is copied without a filter");
  assert.deepEqual(filterTunnels(tunnels, { ...none, search: "WEB" }).map((one) => one.name), ["web"]);
  assert.deepEqual(filterTunnels(tunnels, { ...none, visibility: "private" }).map((one) => one.name), ["db"]);
  assert.deepEqual(filterTunnels(tunnels, { ...none, protocol: "http", label: "env=prod" }).map((one) => one.name), ["web"]);
  assert.equal(hasLabel({ env: "prod" }, "toString"), false);
});

test("labels and lists survive the way through a field", () => {
  const labels = { env: "prod", "a.b": "x=y", empty: "" };
  assert.deepEqual(parseLabels(formatLabels(labels)), labels);
  assert.ok(Object.hasOwn(parseLabels("__proto__=x"), "__proto__"));
  assert.deepEqual(parseList("192.0.2.1,  198.51.100.0/24\n"), ["192.0.2.1", "198.51.100.0/24"]);
});

test("links from one address are one entry, with the worst of their values", () => {
  const link = { address: "192.0.2.1", linkedAt: "2026-01-01T00:00:01Z", seenAt: "2026-01-01T00:01:01Z", version: 3, programVersion: "0.2.0" };
  const relay = { ...link, programVersion: "0.1.0", linkedAt: "2026-01-01T00:00:00.5Z", seenAt: "2026-01-01T00:01:00Z", version: 2 };
  assert.deepEqual(linksByAddress([link, relay, { ...link, address: "192.0.2.2" }]), [
    { address: link.address, count: 2, linkedAt: relay.linkedAt, seenAt: relay.seenAt, version: 2, programs: ["0.2.0", "0.1.0"] },
    { address: "192.0.2.2", count: 1, linkedAt: link.linkedAt, seenAt: link.seenAt, version: 3, programs: ["0.2.0"] },
  ]);
});

test("a boundary is as narrow as its choice", () => {
  assert.equal(resources(NO_BOUNDARY), undefined);
  assert.deepEqual(resources({ ...NO_BOUNDARY, projects: ["prj_1"] }), { tunnels: { projects: ["prj_1"] } });
  assert.deepEqual(resources({ ...NO_BOUNDARY, projects: ["prj_1"], mayCreate: false, names: ["web"], path: "^/a" }), {
    tunnels: { projects: ["prj_1"], scopes: { tunnels: { create: false, connect: { filters: { name: "web" }, params: { path: { regex: "^/a" } } }, list: { filters: { name: "web" } } } } },
  });
  assert.match(boundaryText({ ...NO_BOUNDARY, projects: ["prj_1"] }, new Map([["prj_1", "local"]])), /in local/);
});

test("a boundary in JSON is an object of tunnels, or none", () => {
  assert.deepEqual(parseResources(" "), { value: undefined });
  const written = { tunnels: { OR: [{ workspaces: ["wks_1"] }] } };
  assert.deepEqual(parseResources(JSON.stringify(written)), { value: written });
  assert.match(parseResources("{").error ?? "", /^This is not JSON/);
  for (const text of ["[]", "null", "7", "{}"]) assert.match(parseResources(text).error ?? "", /member tunnels/, text);
});

test("the palette finds every word, and starts of names first", () => {
  const commands = ["Tunnels", "Add a domain", "Domains", "tunnel web"].map((text) => ({ text, kind: "Page", href: text }));
  assert.deepEqual(find(commands, "dom").map((one) => one.text), ["Domains", "Add a domain"]);
  assert.deepEqual(find(commands, "web tun").map((one) => one.text), ["tunnel web"]);
  assert.deepEqual(find(commands, "nothing"), []);
  assert.equal(find(commands, "").length, 4);
});

test("a token for a visitor opens one tunnel and ends", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const shop = { id: "tun_1", name: "shop", hostname: "shop.example.com", publish: true };
  assert.deepEqual(visitorCredential("prj_1", shop, 24, now), {
    type: "pat",
    name: "visit shop",
    permissions: ["tunnels.streams.create-delete"],
    resources: { tunnels: { projects: ["prj_1"], scopes: { tunnels: { connect: { filters: { name: "shop" } } } } } },
    expiresAt: "2026-01-02T00:00:00.000Z",
  });
  const unnamed = visitorCredential("prj_1", { hostname: `${"a".repeat(200)}.example` }, 1, now);
  assert.equal(unnamed.name.length, 100);
  assert.deepEqual(unnamed.resources, { tunnels: { projects: ["prj_1"], scopes: { tunnels: { connect: { filters: { hostname: `${"a".repeat(200)}.example` } } } } } });
  assert.throws(() => visitorCredential("prj_1", { id: "tun_1" }, 1, now), "it would open every tunnel");
  assert.throws(() => visitorCredential("prj_1", { protocol: "tcp", hostname: "t.example.com" }, 1, now), "all TCP tunnels have this host name");
  assert.equal(tokenLink("https://shop.example.com", "aa.bb-c.d_d"), "https://shop.example.com/?svc.token=aa.bb-c.d_d");
});

test("a tunnel offers a token only if one opens it, and names its other proofs", () => {
  assert.equal(opensWithToken({ publish: true }), false);
  assert.equal(opensWithToken({ publish: true, token_auth: true, hostname: "shop.example.com" }), true);
  assert.equal(opensWithToken({ publish: true, token_auth: true }), false, "no token is for only this tunnel");
  assert.equal(opensWithToken({ publish: false, name: "db" }), true);
  assert.equal(opensWithToken({ publish: false }), false, "nothing dials it");
  assert.deepEqual(ways({ publish: true, token_auth: true }), []);
  const all = ways({ basic_auth: true, svc_auth: true, mtls_auth: true });
  assert.deepEqual(all.map((way) => way.name), ["Link password", "Sign-in", "Client certificate"]);
  // The service receives these fields of visitors that have signed in.
  assert.deepEqual(ways({ svc_auth: true, identity: ["email"] }), ways({ svc_auth: true }));
});
