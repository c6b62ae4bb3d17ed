//! Attempts to bypass a path boundary. Each row has the target, and either a refusal or the path
//! that the service receives. A path that one parser allows is never served as another path.

use client::Properties;
use serde_json::json;
use testing::{TestEngine, Upstream};

use super::Table;

/// Outcome of a row: a status, and the target that the service receives.
type Outcome = (u16, &'static str);

const OUTSIDE: Outcome = (403, "");
/// Refused before any boundary is checked: the head is invalid (RFC 9112, 3.2).
const NO_HEAD: Outcome = (400, "");

/// With a boundary of `/api/.*`.
const API: &[(&str, Outcome)] = &[
    ("/api/x", (200, "/api/x")),
    ("/api/", (200, "/api/")),
    ("/api/x?q=/../../admin", (200, "/api/x?q=/../../admin")),
    ("/api/x?q=%2e%2e%2f", (200, "/api/x?q=%2e%2e%2f")),
    ("/api", OUTSIDE),
    ("/", OUTSIDE),
    ("/admin", OUTSIDE),
    ("/apix/", OUTSIDE),
    ("/x/api/", OUTSIDE),
    // Letter case.
    ("/API/x", OUTSIDE),
    ("/Api/x", OUTSIDE),
    ("/%61pi/x", (200, "/api/x")),
    ("/%41pi/x", OUTSIDE),
    // Dot segments.
    ("/api/../admin", OUTSIDE),
    ("/api/x/../../admin", OUTSIDE),
    ("/api/./x", (200, "/api/x")),
    ("/./api/x", (200, "/api/x")),
    ("/admin/../api/x", (200, "/api/x")),
    ("/../api/x", (200, "/api/x")),
    ("/../../../api/x", (200, "/api/x")),
    ("/api/..", OUTSIDE),
    ("/api/x/..", (200, "/api/")),
    ("/api/.", (200, "/api/")),
    ("/api/...", (200, "/api/...")),
    ("/api/.../admin", (200, "/api/.../admin")),
    ("/api/x.", (200, "/api/x.")),
    ("/api./x", OUTSIDE),
    ("/api/%2e%2e/admin", OUTSIDE),
    ("/api/%2E%2E/admin", OUTSIDE),
    ("/api/.%2e/admin", OUTSIDE),
    ("/api/%2e./admin", OUTSIDE),
    ("/api/%2e/x", (200, "/api/x")),
    ("/api/x/%2e%2e", (200, "/api/")),
    ("/api/%2e%2e%2fadmin", OUTSIDE),
    // Slashes.
    ("/api%2fx", OUTSIDE),
    ("/api/x%2f..%2f..%2fadmin", OUTSIDE),
    ("/api/..%2fadmin", OUTSIDE),
    ("/api/%2f", OUTSIDE),
    ("//api/x", OUTSIDE),
    ("//admin/../api/x", OUTSIDE),
    ("///api/x", OUTSIDE),
    ("/.//api/x", OUTSIDE),
    ("/x/..//api/x", OUTSIDE),
    ("/api//x", (200, "/api//x")),
    ("/api//../admin", (200, "/api/admin")),
    ("/api///..//..//admin", (200, "/api///admin")),
    ("/api//../../admin", OUTSIDE),
    ("/api/\\admin", OUTSIDE),
    ("/api/..\\admin", OUTSIDE),
    ("/api\\..\\admin", OUTSIDE),
    ("/api/%5c..%5cadmin", OUTSIDE),
    ("/api/..%5Cadmin", OUTSIDE),
    ("\\api\\x", NO_HEAD),
    // Doubly encoded, malformed and non-UTF-8 encodings.
    ("/api/%252e%252e/admin", OUTSIDE),
    ("/api/%25%32%65%25%32%65/admin", OUTSIDE),
    ("/api/%252f", OUTSIDE),
    ("/api/x%25", OUTSIDE),
    ("/api/%%32e", OUTSIDE),
    ("/api/%", OUTSIDE),
    ("/api/%2", OUTSIDE),
    ("/api/%zz", OUTSIDE),
    ("/api/%u002e%u002e/admin", OUTSIDE),
    ("/api/%uff0e", OUTSIDE),
    ("/api/%c0%ae%c0%ae/admin", OUTSIDE),
    ("/api/%c0%af", OUTSIDE),
    ("/api/%e0%80%ae", OUTSIDE),
    ("/api/%f0%80%80%ae", OUTSIDE),
    ("/api/%e0%80%af", OUTSIDE),
    ("/api/%ff", OUTSIDE),
    ("/api/%80", OUTSIDE),
    ("/api/%ed%a0%80", OUTSIDE),
    ("/api/%f5%80%80%80", OUTSIDE),
    // Full-width dots and slashes are letters. None of our code folds them.
    (
        "/api/%ef%bc%8e%ef%bc%8e/x",
        (200, "/api/%ef%bc%8e%ef%bc%8e/x"),
    ),
    ("/api/%ef%bc%8f", (200, "/api/%ef%bc%8f")),
    ("/api/caf%C3%A9", (200, "/api/caf%C3%A9")),
    // Control characters.
    ("/api/%00", OUTSIDE),
    ("/admin%00/api/x", OUTSIDE),
    ("/api/x%00.png", OUTSIDE),
    ("/admin%0a/api/x", OUTSIDE),
    ("/api/x%0a", OUTSIDE),
    ("/api/x%0d%0aX:%20y", OUTSIDE),
    ("/api/x%09", OUTSIDE),
    ("/api/x%1f", OUTSIDE),
    ("/api/x%7f", OUTSIDE),
    ("/api/x%c2%80", OUTSIDE),
    ("/api/x%c2%85", OUTSIDE),
    ("/api/x%e2%80%a8", (200, "/api/x%e2%80%a8")),
    // Path parameters.
    ("/api;x/y", OUTSIDE),
    ("/api/x;y=z", (200, "/api/x;y=z")),
    ("/api/..;/admin", OUTSIDE),
    ("/api/..;x=y/admin", OUTSIDE),
    ("/api/.;/x", OUTSIDE),
    ("/api/%2e%2e;/admin", OUTSIDE),
    ("/api/..%3b/admin", OUTSIDE),
    ("/api/..%3B/admin", OUTSIDE),
    ("/api/..%20/admin", OUTSIDE),
    ("/api/%20../admin", OUTSIDE),
    ("/api/;/../admin", (200, "/api/admin")),
    ("/api;/../admin", OUTSIDE),
    ("/api/x;/../../admin", OUTSIDE),
    // Reserved characters keep their form.
    ("/api/%3F", (200, "/api/%3F")),
    ("/api/x%3F/../../admin", OUTSIDE),
    ("/api/%23", (200, "/api/%23")),
    ("/api/%20", (200, "/api/%20")),
    ("/api/%7e%2d%5f", (200, "/api/~-_")),
    ("/api/a+b@c:d!$&'()*,=", (200, "/api/a+b@c:d!$&'()*,=")),
    ("/api/%2B", (200, "/api/%2B")),
    // Other forms of a target.
    ("*", OUTSIDE),
    ("api/x", NO_HEAD),
    ("?x", NO_HEAD),
    ("/api/x#/../../admin", NO_HEAD),
    ("/admin#/api/x", NO_HEAD),
    ("https://HOST/api/x", (200, "/api/x")),
    ("http://HOST/api/x", (200, "/api/x")),
    ("https://HOST/api/../admin", OUTSIDE),
    ("https://HOST/admin", OUTSIDE),
    ("https://HOST", OUTSIDE),
    ("https://HOST//api/x", OUTSIDE),
    ("https://HOST?/api/x", OUTSIDE),
    ("https://other.example/api/x", NO_HEAD),
    ("https://HOST@other.example/api/x", NO_HEAD),
    ("https://user@HOST/api/x", NO_HEAD),
    ("//HOST/api/x", OUTSIDE),
    ("file:///api/x", NO_HEAD),
];

/// Other patterns, one per row.
const PATTERNS: &[(&str, &str, Outcome)] = &[
    ("/api", "/api", (200, "/api")),
    ("/api", "/api/", OUTSIDE),
    ("/api", "/api/x", OUTSIDE),
    ("/api", "/api?x", (200, "/api?x")),
    ("/api", "/api%0a", OUTSIDE),
    ("/api|/pub", "/pub", (200, "/pub")),
    ("/api|/pub", "/pub/x", OUTSIDE),
    ("/api|/pub", "/x/pub", OUTSIDE),
    ("^/api", "/api/../x", OUTSIDE),
    ("^/api", "/apix", (200, "/apix")),
    ("^/api$", "/api", (200, "/api")),
    ("^/api$", "/api/x", OUTSIDE),
    ("^/api/|/pub/", "/pub/x", (200, "/pub/x")),
    ("^/api/|/pub/", "/x/pub/", OUTSIDE),
    ("(?i)/api/.*", "/API/x", OUTSIDE),
    ("(?i)/api/.*", "/api/x", OUTSIDE),
    ("/(?i:api)/.*", "/api/x", OUTSIDE),
    ("(?m)^/a$", "/a%0ab", OUTSIDE),
    ("(?s)/a.*", "/a%0ab", OUTSIDE),
    ("/[^/]+", "/a", (200, "/a")),
    ("/[^/]+", "/a/b", OUTSIDE),
    ("/[^/]+", "/a%2fb", OUTSIDE),
    ("/[^/]+", "/a%5cb", OUTSIDE),
    ("/a/[^/]+", "/a/..", OUTSIDE),
    ("/a/[^/]+", "/a/%2e%2e", OUTSIDE),
    ("/a b", "/a%20b", OUTSIDE),
    ("/a%20b", "/a%20b", (200, "/a%20b")),
    ("/a%2fb", "/a%2fb", OUTSIDE),
    (".*", "//x", OUTSIDE),
    (".*", "/..;/x", OUTSIDE),
    (".*", "*", OUTSIDE),
    (".*", "/anything/at/all", (200, "/anything/at/all")),
    ("", "/", OUTSIDE),
    ("(", "/", OUTSIDE),
    ("(?=a)", "/a", OUTSIDE),
    (r"(.)\1", "/a", OUTSIDE),
];

#[tokio::test]
async fn ed_7_no_target_bypasses_a_path_boundary() {
    let rows: Vec<_> = API
        .iter()
        .map(|(target, fate)| ("/api/.*", *target, *fate))
        .collect();
    holds(&rows).await;
}

#[tokio::test]
async fn ed_7_a_pattern_is_matched_against_the_served_path() {
    holds(PATTERNS).await;
}

/// Without a path boundary no path is changed. Its interpretation is left to the service.
#[tokio::test]
async fn without_a_path_boundary_the_path_is_unchanged() {
    let site = GuardedTunnel::start().await;
    let token = site.engine.token(json!({}));
    let mut table = Table::default();
    for target in [
        "/a/../b",
        "//a",
        "/a%2fb",
        "/%2e%2e/",
        "/%252e",
        "/%",
        "/%zz",
        "/%00",
        "/a;b",
        "/..;/",
        "/%ff",
        "/A%7e",
        "/a//b",
        "/.",
        "/a?b=%zz&&",
    ] {
        let seen = site.visit(target, &token).await;
        table.row([target], &seen, &(200, target.to_owned()));
    }
    table.assert_no_failures();
}

async fn holds(rows: &[(&str, &str, Outcome)]) {
    let site = GuardedTunnel::start().await;
    let mut table = Table::default();
    for wanted in [false, true] {
        for (pattern, target, fate) in rows.iter().filter(|row| (row.2.0 == 200) == wanted) {
            let boundary = json!({"tunnels": {"scopes": {"tunnels": {
                "connect": {"params": {"path": {"regex": pattern}}}
            }}}});
            let token = site.engine.token(json!({"resources": boundary}));
            let expected = (fate.0, fate.1.to_owned());
            table.row(
                [*pattern, target],
                &site.visit(target, &token).await,
                &expected,
            );
            if let Some(seen) = site.visit_over_http2(target, &token).await {
                table.row([*pattern, target, "HTTP/2"], &seen, &expected);
            }
        }
        if !wanted {
            assert_eq!(site.service.accepted(), 0, "the service was contacted");
        }
    }
    table.assert_no_failures();
}

struct GuardedTunnel {
    engine: TestEngine,
    service: Upstream,
    tunnel: testing::TestTunnel,
}

impl GuardedTunnel {
    async fn start() -> Self {
        let engine = TestEngine::start().await;
        let service = Upstream::http1().await;
        let guarded = Properties::http().token_auth(true);
        let tunnel = engine.publish_as(guarded, service.addr()).await;
        Self {
            engine,
            service,
            tunnel,
        }
    }

    /// The status, and the target that the service received.
    async fn visit(&self, target: &str, token: &str) -> (u16, String) {
        let host = self.tunnel.hostname();
        let mut visitor = self.engine.visitor().http1(host).await;
        let target = target.replace("HOST", host);
        let method = if target == "*" { "OPTIONS" } else { "GET" };
        let bearer = format!("Authorization: Bearer {token}\r\n");
        visitor.request(method, &target, host, &bearer).await;
        told(&visitor.answer().await)
    }

    /// The same over HTTP/2, for targets that the client library is able to send: those that start
    /// with a slash and that it parses as a path.
    async fn visit_over_http2(&self, target: &str, token: &str) -> Option<(u16, String)> {
        let host = self.tunnel.hostname();
        let uri = format!("https://{host}{target}")
            .parse::<http::Uri>()
            .ok()?;
        let as_it_is = uri
            .path_and_query()
            .is_some_and(|sent| sent.as_str() == target);
        if !as_it_is {
            return None;
        }
        let request = http::Request::get(uri)
            .header("authorization", format!("Bearer {token}"))
            .body(testing::H2Visitor::empty());
        let mut visitor = self.engine.visitor().h2(host).await;
        let answer = visitor.send(request.unwrap()).await.unwrap();
        Some(told(&testing::H2Visitor::collect(answer).await))
    }
}

fn told(answer: &testing::ReceivedResponse) -> (u16, String) {
    let seen = match answer.status {
        200 => answer.json()["target"].as_str().unwrap().to_owned(),
        _ => String::new(),
    };
    (answer.status, seen)
}
