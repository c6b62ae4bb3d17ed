//! The catalogue of rules: each rule of the platform's interface in one sentence. `docs/rules.md`
//! is generated from it.

/// A part of the interface, with its rules in order.
pub(super) struct Area {
    pub(super) title: &'static str,
    /// Prefixes of the ids of its rules.
    pub(super) prefixes: &'static [&'static str],
    /// Id and text of each rule.
    pub(super) rules: &'static [(&'static str, &'static str)],
}

pub(super) const AREAS: &[Area] = &[
    Area {
        title: "Control plane API",
        prefixes: &["CP"],
        rules: CONTROL_PLANE,
    },
    Area {
        title: "Engine API",
        prefixes: &["EN"],
        rules: ENGINE,
    },
    Area {
        title: "Published tunnels at the edge",
        prefixes: &["ED"],
        rules: EDGE,
    },
    Area {
        title: "OAuth",
        prefixes: &["OA"],
        rules: OAUTH,
    },
    Area {
        title: "MCP",
        prefixes: &["MC"],
        rules: MCP,
    },
    Area {
        title: "TURN",
        prefixes: &["TU"],
        rules: TURN,
    },
    Area {
        title: "Metrics and operation",
        prefixes: &["MX", "OP"],
        rules: OPERATION,
    },
    Area {
        title: "Events of the command line",
        prefixes: &["EV"],
        rules: EVENTS,
    },
    Area {
        title: "WebTTY",
        prefixes: &["WT"],
        rules: WEBTTY,
    },
];

const CONTROL_PLANE: &[(&str, &str)] = &[
    (
        "CP-1",
        "`GET /api/whoami` tells any valid bearer who it is: kind of credential, user, limits, effective permissions, boundaries",
    ),
    (
        "CP-2",
        "`GET /api/projects/tunnels` lists the projects that the caller may see (`account.projects.read-only`)",
    ),
    (
        "CP-3",
        "The plan preview shows available plans, unavailable ones with a reason, places, billing impact and action, and a fingerprint (`account.plan.read-only`); a region is recommended only where geolocation works",
    ),
    (
        "CP-4",
        "A project is created from plan, provider, region, fingerprint and idempotency key (`account.projects.read-write`)",
    ),
    (
        "CP-4a",
        "The idempotency key is required; repeated with the same body it answers the same project and creates nothing, even at the same instant; with another body it is refused",
    ),
    (
        "CP-4b",
        "A preview that no longer holds is a 409 that creates nothing; a fresh one works",
    ),
    ("CP-4c", "A body that picks a billing mode is refused"),
    (
        "CP-4d",
        "A billing action that needs a hosted step cannot be confirmed here; the answer has the address of that step",
    ),
    (
        "CP-4e",
        "A subscribed workspace gets no second checkout: its subscription is changed on the server after confirmation",
    ),
    (
        "CP-4f",
        "Where server-confirmed creation is off, plans that would change a subscription are listed as unavailable",
    ),
    (
        "CP-4g",
        "Command line and MCP create only after the billing impact was shown and confirmed",
    ),
    (
        "CP-5",
        "An endpoint resolves to its project (`account.projects.read-only`); a foreign one looks like one that does not exist",
    ),
    (
        "CP-6",
        "TURN credentials are issued by project id and by endpoint, under the TURN rules",
    ),
    (
        "CP-7",
        "`GET /api/openapi.json` is made from the serving code and carries the required rules of each operation, the permission table and the bundles",
    ),
    (
        "CP-8",
        "`GET /.well-known/api-catalog` names both OpenAPI documents",
    ),
    (
        "CP-9",
        "`GET /api/engine/openapi.json` is byte for byte the document of an engine of this version",
    ),
    (
        "CP-10",
        "Every route that is not public needs a bearer; a bad one is a 401 with `WWW-Authenticate`",
    ),
    (
        "CP-11",
        "Each row of the control plane's permission table is enforced on the routes of its task",
    ),
    (
        "CP-12",
        "Registered WebTTY servers are durable records: inventory, enrolment, metadata, and policies for recording, encryption and access",
    ),
    (
        "CP-13",
        "An explicit credential wins: a bearer over a cookie, and a good cookie never rescues a bad bearer",
    ),
    (
        "CP-14",
        "The published scope bundles are offered as they are; rights over tokens and credentials are asked for only on request",
    ),
    (
        "CP-15",
        "The operations of the interface are the stable set, are marked so, and are held by a test",
    ),
    (
        "CP-16",
        "There are four kinds of credential (PAT, `app`, `auth`, mTLS certificate), each with `resources.tunnels`",
    ),
];

const ENGINE: &[(&str, &str)] = &[
    (
        "EN-1",
        "`GET /api/clients` and `GET /api/tunnels` list what is alive in the caller's project; they need a bearer with `tunnels.resources.read-only`",
    ),
    (
        "EN-1a",
        "Self-hosted, the lists take an engine JWT on the engine's own host; on a tunnel's host `/api/*` belongs to the upstream",
    ),
    (
        "EN-2",
        "`params` is optional JSON with `limit` and `filters`; anything malformed, unknown or out of range is refused by the name of the key",
    ),
    (
        "EN-2a",
        "Tunnels are filtered by name, labels, publish state, protocol, HTTP version, owner and client",
    ),
    (
        "EN-2b",
        "Clients are filtered by agent, channel, version, os, arch, labels and user",
    ),
    (
        "EN-3",
        "`GET /api/sse` begins with a filtered snapshot and continues with the changes; nothing is lost or doubled between the two",
    ),
    (
        "EN-3a",
        "The streams take a bearer of any type with `tunnels.resources.read-only`; the watch-token rule is for the query alone",
    ),
    ("EN-4", "`/api/websocket` carries the same stream"),
    (
        "EN-5",
        "`svc.token` in the query is a credential on the two streams and nowhere else on the engine",
    ),
    (
        "EN-5a",
        "A watch token is of type `auth` or `app`, never a PAT",
    ),
    (
        "EN-5b",
        "A watch token expires, and has more than nothing and at most 3660 s to live",
    ),
    (
        "EN-5c",
        "Its resources are for watching: listing yes, creation and connection no",
    ),
    (
        "EN-5d",
        "Without tunnel resources it may hold read permissions only where it holds none that change tunnels or streams",
    ),
    (
        "EN-6",
        "`GET /api/openapi.json` is open to everyone in builds with discovery, else 404: OpenAPI 3.1 with the three extensions",
    ),
    (
        "EN-7",
        "Each row of the engine's permission table is enforced, and the boundaries with it",
    ),
    (
        "EN-8",
        "Managed WebTTY sessions are listed, followed, attached to, controlled and exported here",
    ),
    (
        "EN-9",
        "The community engine keeps live state in memory only: after a restart agents come back and make their tunnels anew",
    ),
    (
        "EN-10",
        "Agents reach a self-hosted engine by its own host and no other name; published names live under `*.t.<host>`; a certificate that lacks either is warned about",
    ),
    (
        "EN-11",
        "An option outside the community build is refused as unavailable, by its name",
    ),
    (
        "EN-12",
        "A replaced certificate is in service at a later handshake; a broken pair leaves the old one there and is tried again when the files change",
    ),
];

const EDGE: &[(&str, &str)] = &[
    (
        "ED-1",
        "Token authentication wants a bearer or `svc.token` on every request",
    ),
    (
        "ED-1a",
        "With both, the query value is the edge's credential and is cut out; the header travels on untouched",
    ),
    (
        "ED-1b",
        "`svc.token` stands exactly once and is not empty, or the request is refused before the upstream hears of it; the bearer is no fallback",
    ),
    (
        "ED-1c",
        "Managed projects take PAT, `app` and `auth` tokens; permissions and boundaries decide each request",
    ),
    (
        "ED-1d",
        "That precedence holds on published tunnels only; the streams judge a query token alone, other routes ignore it",
    ),
    (
        "ED-1e",
        "A link that we write carries a short-lived token for its tunnel and path, and is https; the plain listener never passes such a request on",
    ),
    (
        "ED-2",
        "Browser sessions: a cookie and a sign-in, for authorised users; not in the community build",
    ),
    (
        "ED-3",
        "mTLS is proven in the handshake and matched to a credential whose permissions and boundaries apply; agents are another matter",
    ),
    (
        "ED-4",
        "Methods combine: a token is judged first, without one the session; a refused token never falls back; a bearer behind `svc.token` is data",
    ),
    (
        "ED-5",
        "With mTLS one request carries one proof: a certificate beside a bearer or a session is refused as ambiguous",
    ),
    (
        "ED-6",
        "The challenge comes before the session; a valid, authorised bearer passes it by",
    ),
    (
        "ED-7",
        "Boundaries limit projects, workspaces and paths; a path is judged before forwarding, and as the upstream will see it",
    ),
    (
        "ED-8",
        "A project has a policy of its own: authenticated public access, trusted addresses, countries, minimum TLS version",
    ),
];

const OAUTH: &[(&str, &str)] = &[
    (
        "OA-1",
        "Both discovery documents are served under `/.well-known/`",
    ),
    (
        "OA-2",
        "Authorisation codes need PKCE S256, an exactly registered callback, sign-in and consent, and keep the session's limits",
    ),
    ("OA-3", "A code works once, for five minutes"),
    (
        "OA-4",
        "The device grant has its own approval screen, apart from consent",
    ),
    (
        "OA-5",
        "Tokens are issued and revoked at `/oauth/token` and `/oauth/revoke`",
    ),
    ("OA-6", "Tokens are for the whole origin of the platform"),
    (
        "OA-7",
        "Access tokens last 90 days; there are no refresh tokens",
    ),
    (
        "OA-8",
        "Every claim is validated, and the token's hash must match an active record, so that revocation is immediate",
    ),
];

const MCP: &[(&str, &str)] = &[
    ("MC-1", "The endpoint is `/api/mcp`, Streamable HTTP"),
    (
        "MC-2",
        "Listing tools, `svc_discovery` and `svc_openapi` are anonymous",
    ),
    (
        "MC-3",
        "Every other tool declares an OAuth scheme with the scopes it needs",
    ),
    (
        "MC-4",
        "PATs without OAuth claims are welcome; with any such claim the set must be whole and consistent",
    ),
    ("MC-5", "Cookies never authenticate here"),
    (
        "MC-6",
        "A result says `invalid_token` where login is missing, `insufficient_scope` and the scopes where a right is",
    ),
    ("MC-7", "A bad bearer is a 401 with `WWW-Authenticate`"),
];

const TURN: &[(&str, &str)] = &[
    (
        "TU-1",
        "Issuance takes an optional `ttlSeconds`, an integer from 1 to 3600, and nothing else",
    ),
    (
        "TU-2",
        "The username is `v1:<exp>:api:<project_endpoint>:<user_id>`",
    ),
    (
        "TU-3",
        "The caller has access to the project, and where its credential is restricted, `turn.credentials.create` and a matching boundary",
    ),
    (
        "TU-4",
        "The relay refuses a username that is expired or has more than an hour to live",
    ),
    (
        "TU-5",
        "Locally derived credentials are checked by the relay with `turn.relay.allocate`",
    ),
];

const OPERATION: &[(&str, &str)] = &[
    (
        "MX-1",
        "The metrics listener exists only where it is enabled and has an address",
    ),
    (
        "MX-2",
        "Its path is configurable, `/metrics` by default; a missing slash is added",
    ),
    (
        "OP-1",
        "An engine image carries a version; a restart drains, then agents come back",
    ),
    (
        "MX-3",
        "Off loopback it needs a bearer token, or the process does not start",
    ),
];

const EVENTS: &[(&str, &str)] = &[(
    "EV-1",
    "`svc events` prints each event as JSON or posts it on; with `--webhook` the receiver sees the signed form",
)];

const WEBTTY: &[(&str, &str)] = &[
    (
        "WT-1",
        "Lightweight WebTTY tunnels leave no record; live inventory finds them",
    ),
    (
        "WT-2",
        "Registered servers have records and managed sessions: participants, spectators, control, recording, export",
    ),
    ("WT-3", "Terminal bytes never travel over the HTTP API"),
    (
        "WT-4",
        "Three permissions: spectate, join and ask for control, read recordings",
    ),
    (
        "WT-5",
        "Participants and control requests show up as events",
    ),
    (
        "WT-6",
        "Tunnel WebTTY servers use the tunnel permissions; registered ones add theirs for managed sessions and recordings",
    ),
];
