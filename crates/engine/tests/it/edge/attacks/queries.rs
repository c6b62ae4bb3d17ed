//! Every spelling of the query credential. The tests cover the spellings that count, and that a
//! credential is never forwarded to the service, put into a redirect or written to the access log.

use client::Properties;
use serde_json::{Value, json};
use testing::{RawVisitor, TestEngine, TestTunnel, Upstream};
use tokio::net::TcpStream;

use super::Table;

/// Outcome of a query: a status, and the target that the service receives if it is called.
type Outcome = (u16, Option<&'static str>);

const COUNTS: Outcome = (200, Some("/x"));
/// Not a credential. Without one the tunnel refuses the request.
const IS_DATA: Outcome = (401, None);
const IS_MALFORMED: Outcome = (400, None);

/// Targets in which `GOOD` stands for a valid token, `G%2ED` for the same token with its dots
/// escaped, and `BAD` for one with a wrong signature.
const ROWS: &[(&str, Outcome)] = &[
    ("/x?svc.token=GOOD", COUNTS),
    ("/x?svc%2Etoken=GOOD", COUNTS),
    ("/x?svc%2etoken=GOOD", COUNTS),
    ("/x?%73vc.token=GOOD", COUNTS),
    ("/x?svc.toke%6e=GOOD", COUNTS),
    ("/x?%73%76%63%2e%74%6f%6b%65%6e=GOOD", COUNTS),
    ("/x?svc.token=G%2ED", COUNTS),
    ("/x?svc%2Etoken=G%2ED", COUNTS),
    // All other bytes stay unchanged.
    ("/x?a=1&svc.token=GOOD", (200, Some("/x?a=1"))),
    ("/x?svc.token=GOOD&a=1", (200, Some("/x?a=1"))),
    ("/x?a=1&svc.token=GOOD&b=2", (200, Some("/x?a=1&b=2"))),
    ("/x?&svc.token=GOOD&", (200, Some("/x?&"))),
    ("/x?a=%zz&svc.token=GOOD", (200, Some("/x?a=%zz"))),
    ("/x?a=+%2B;b&svc.token=GOOD", (200, Some("/x?a=+%2B;b"))),
    (
        "/x?a=svc.token&svc.token=GOOD",
        (200, Some("/x?a=svc.token")),
    ),
    (
        "/x?SVC.TOKEN=1&svc.token=GOOD",
        (200, Some("/x?SVC.TOKEN=1")),
    ),
    (
        "/x?svc%252Etoken=1&svc.token=GOOD",
        (200, Some("/x?svc%252Etoken=1")),
    ),
    ("/?svc.token=GOOD", (200, Some("/"))),
    ("//y/../x?svc.token=GOOD", (200, Some("//y/../x"))),
    // Other names.
    ("/x", IS_DATA),
    ("/x?", IS_DATA),
    ("/x?token=GOOD", IS_DATA),
    ("/x?access_token=GOOD", IS_DATA),
    ("/x?SVC.TOKEN=GOOD", IS_DATA),
    ("/x?Svc.token=GOOD", IS_DATA),
    ("/x?svc.Token=GOOD", IS_DATA),
    ("/x?svc_token=GOOD", IS_DATA),
    ("/x?svc-token=GOOD", IS_DATA),
    ("/x?svctoken=GOOD", IS_DATA),
    ("/x?svc..token=GOOD", IS_DATA),
    ("/x?svc.token.=GOOD", IS_DATA),
    ("/x?xsvc.token=GOOD", IS_DATA),
    ("/x?svc.token[]=GOOD", IS_DATA),
    ("/x?svc[token]=GOOD", IS_DATA),
    ("/x?svc.token%00=GOOD", IS_DATA),
    ("/x?%00svc.token=GOOD", IS_DATA),
    ("/x?+svc.token=GOOD", IS_DATA),
    ("/x?svc.token+=GOOD", IS_DATA),
    ("/x?%20svc.token=GOOD", IS_DATA),
    ("/x?svc.token%20=GOOD", IS_DATA),
    ("/x?svc.token%0a=GOOD", IS_DATA),
    ("/x?svc.token%3DGOOD", IS_DATA),
    ("/x?svc%252Etoken=GOOD", IS_DATA),
    ("/x?%2573vc.token=GOOD", IS_DATA),
    ("/x?svc%C0%AEtoken=GOOD", IS_DATA),
    ("/x?svc%EF%BC%8Etoken=GOOD", IS_DATA),
    ("/x?svc%u002Etoken=GOOD", IS_DATA),
    ("/x?svc%2token=GOOD", IS_DATA),
    // Other separators and other positions.
    ("/x?a=1;svc.token=GOOD", IS_DATA),
    ("/x?a=1%26svc.token=GOOD", IS_DATA),
    ("/x?a=1%0asvc.token=GOOD", IS_DATA),
    ("/x?a=1,svc.token=GOOD", IS_DATA),
    ("/x?;svc.token=GOOD", IS_DATA),
    ("/x??svc.token=GOOD", IS_DATA),
    ("/x?a=?svc.token=GOOD", IS_DATA),
    ("/x;svc.token=GOOD", IS_DATA),
    ("/x%3Fsvc.token=GOOD", IS_DATA),
    ("/svc.token=GOOD", IS_DATA),
    ("/svc.token/GOOD", IS_DATA),
    ("/x?rstream.token=GOOD", IS_DATA),
    // Empty, broken, repeated.
    ("/x?svc.token", IS_MALFORMED),
    ("/x?svc.token=", IS_MALFORMED),
    ("/x?svc%2Etoken", IS_MALFORMED),
    ("/x?svc.token==GOOD", IS_MALFORMED),
    ("/x?svc.token=Bearer%20GOOD", IS_MALFORMED),
    ("/x?svc.token=%22GOOD%22", IS_MALFORMED),
    ("/x?svc.token=GOOD+", IS_MALFORMED),
    ("/x?svc.token=+GOOD", IS_MALFORMED),
    ("/x?svc.token=GOOD%20", IS_MALFORMED),
    ("/x?svc.token=GOOD%0a", IS_MALFORMED),
    ("/x?svc.token=GOOD%00", IS_MALFORMED),
    ("/x?svc.token=GOOD%3D", IS_MALFORMED),
    ("/x?svc.token=GOOD=", IS_MALFORMED),
    ("/x?svc.token=GOOD%", IS_MALFORMED),
    ("/x?svc.token=GOOD%2", IS_MALFORMED),
    ("/x?svc.token=GOOD%zz", IS_MALFORMED),
    ("/x?svc.token=GOOD%ff", IS_MALFORMED),
    ("/x?svc.token=GOOD.", IS_MALFORMED),
    ("/x?svc.token=GOOD%2E", IS_MALFORMED),
    ("/x?svc.token=.GOOD", IS_MALFORMED),
    ("/x?svc.token=GOOD;a=1", IS_MALFORMED),
    ("/x?svc.token=GOOD,GOOD", IS_MALFORMED),
    ("/x?svc.token=G%252ED", IS_MALFORMED),
    ("/x?svc.token=a.b", IS_MALFORMED),
    ("/x?svc.token=GOOD&svc.token=GOOD", IS_MALFORMED),
    ("/x?svc.token=GOOD&svc.token=BAD", IS_MALFORMED),
    ("/x?svc.token=BAD&svc.token=GOOD", IS_MALFORMED),
    ("/x?svc.token=GOOD&svc.token", IS_MALFORMED),
    ("/x?svc.token=&svc.token=GOOD", IS_MALFORMED),
    ("/x?svc.token=GOOD&svc%2Etoken=GOOD", IS_MALFORMED),
    ("/x?%73vc.token=GOOD&a&svc.toke%6E=GOOD", IS_MALFORMED),
    // Complete, but invalid.
    ("/x?svc.token=BAD", IS_DATA),
    ("/x?svc.token=a.b.c", IS_DATA),
];

/// Rows for an engine that also accepts the other brand's spelling.
const COMPAT_ROWS: &[(&str, Outcome)] = &[
    ("/x?svc.token=GOOD", COUNTS),
    ("/x?rstream.token=GOOD", COUNTS),
    ("/x?rstream%2Etoken=G%2ED&a", (200, Some("/x?a"))),
    ("/x?%72stream.token=GOOD", COUNTS),
    ("/x?RSTREAM.TOKEN=GOOD", IS_DATA),
    ("/x?rstream_token=GOOD", IS_DATA),
    ("/x?a;rstream.token=GOOD", IS_DATA),
    ("/x?rstream.token=BAD", IS_DATA),
    ("/x?rstream.token=", IS_MALFORMED),
    ("/x?rstream.token", IS_MALFORMED),
    ("/x?rstream.token=GOOD&rstream.token=GOOD", IS_MALFORMED),
    ("/x?svc.token=GOOD&rstream.token=GOOD", IS_MALFORMED),
    ("/x?rstream.token=GOOD&svc.token", IS_MALFORMED),
];

#[tokio::test]
async fn every_spelling_of_the_query_credential() {
    let door = GuardedTunnel::open("").await;
    door.check_rows(ROWS).await;
}

#[tokio::test]
async fn both_spellings_of_the_query_credential() {
    let door = GuardedTunnel::open("compat: {rstream: true}\n").await;
    door.check_rows(COMPAT_ROWS).await;
}

/// ED-1a: next to a query credential a header is the application's data, valid or not. Only the
/// query credential is checked.
#[tokio::test]
async fn with_a_query_credential_the_header_is_data() {
    let door = GuardedTunnel::open("").await;
    let host = door.tunnel.hostname();
    let (good, bad) = (&door.token, door.bad());
    let mut table = Table::default();
    let fields = [
        format!("Bearer {good}"),
        format!("Bearer {bad}"),
        format!("bearer {good}"),
        "Bearer".to_owned(),
        "Bearer not a token".to_owned(),
        "Basic YTpi".to_owned(),
    ];
    for (query, status) in [
        (bad.as_str(), 401),
        ("", 400),
        ("a.b", 400),
        (good.as_str(), 200),
    ] {
        for field in &fields {
            let mut visitor = door.engine.visitor().http1(host).await;
            let target = format!("/x?svc.token={query}");
            let line = format!("Authorization: {field}\r\n");
            visitor.request("GET", &target, host, &line).await;
            let answer = visitor.answer().await;
            let passed = (status == 200).then(|| field.clone());
            let was = (answer.status, header(&answer.json(), "authorization"));
            table.row([query, field], &was, &(status, passed));
        }
        let contacted = door.service.accepted() > 0;
        table.row([query, "contacts"], &contacted, &(status == 200));
    }
    // A credential in a cookie or in a field with another name has no effect.
    for field in [
        "Cookie: svc.token=GOOD",
        "X-Svc-Token: GOOD",
        "svc.token: GOOD",
    ] {
        let mut visitor = door.engine.visitor().http1(host).await;
        let line = format!("{}\r\n", door.fill(field));
        visitor.request("GET", "/x", host, &line).await;
        table.row([field], &visitor.answer().await.status, &401);
    }
    table.assert_no_failures();
}

/// The credential is also removed from the `Referer`.
#[tokio::test]
async fn a_referer_does_not_contain_the_credential() {
    let door = GuardedTunnel::open("").await;
    let host = door.tunnel.hostname();
    let mut table = Table::default();
    for (referer, left) in [
        ("https://HOST/p?svc.token=GOOD", "https://HOST/p"),
        (
            "https://HOST/p?a=1&svc%2Etoken=GOOD&b",
            "https://HOST/p?a=1&b",
        ),
        (
            "https://HOST/p?svc.token=GOOD&%73vc.token=GOOD#f",
            "https://HOST/p#f",
        ),
        ("https://HOST/p?svc.token", "https://HOST/p"),
        (
            "https://other.example/?svc.token=GOOD",
            "https://other.example/",
        ),
        ("https://HOST/p?a=1", "https://HOST/p?a=1"),
    ] {
        let fill = |text: &str| text.replace("HOST", host).replace("GOOD", &door.token);
        let field = format!("Referer: {}\r\n", fill(referer));
        let mut visitor = door.engine.visitor().http1(host).await;
        let target = format!("/x?svc.token={}", door.token);
        visitor.request("GET", &target, host, &field).await;
        let seen = visitor.answer().await.json();
        table.row([referer], &header(&seen, "referer"), &Some(fill(left)));
    }
    table.assert_no_failures();
}

/// ED-1e: the plain listener never redirects such a request, whatever its spelling.
#[tokio::test]
async fn no_spelling_of_the_credential_is_redirected() {
    let plain = "http: {enabled: true, listen_addr: '127.0.0.1:0'}\n";
    let door = GuardedTunnel::open(plain).await;
    let host = door.tunnel.hostname();
    let addr = door.engine.running().http_addr().unwrap();
    let mut table = Table::default();
    // The host is not yet known, so both brands' spellings count.
    for (target, fate) in ROWS.iter().chain(COMPAT_ROWS) {
        let names_it = *fate == COUNTS
            || fate.0 == 200
            || *fate == IS_MALFORMED
            || is_whole(target)
            || target.contains("?rstream.token=");
        let filled = door.fill(target);
        let mut visitor = RawVisitor::new(TcpStream::connect(addr).await.unwrap());
        visitor.request("GET", &filled, host, "").await;
        let answer = visitor.answer().await;
        let has_address = answer.header("location").is_some();
        let expected = if names_it { (400, false) } else { (308, true) };
        table.row([*target], &(answer.status, has_address), &expected);
    }
    table.assert_no_failures();
}

/// True for rows that have the form of a credential without a valid token.
fn is_whole(target: &str) -> bool {
    ["/x?svc.token=BAD", "/x?svc.token=a.b.c"].contains(&target)
}

fn header(seen: &Value, name: &str) -> Option<String> {
    let pairs = seen["headers"].as_array()?.iter();
    let mut found = pairs.filter(|pair| pair[0] == json!(name));
    Some(found.next()?[1].as_str()?.to_owned())
}

/// A tunnel that requires a token, and a client with a token.
struct GuardedTunnel {
    engine: TestEngine,
    service: Upstream,
    tunnel: TestTunnel,
    token: String,
    log: tempfile::TempDir,
}

impl GuardedTunnel {
    async fn open(sections: &str) -> Self {
        let log = tempfile::tempdir().unwrap();
        let path = log.path().join("access.log");
        let access_log = format!("access_log: {{path: {path:?}}}\n{sections}");
        let engine = TestEngine::start_with(&access_log).await;
        let service = Upstream::http1().await;
        let guarded = Properties::http().token_auth(true);
        let tunnel = engine.publish_as(guarded, service.addr()).await;
        let token = engine.token(json!({}));
        Self {
            engine,
            service,
            tunnel,
            token,
            log,
        }
    }

    fn bad(&self) -> String {
        let (signed, _) = self.token.rsplit_once('.').unwrap();
        format!("{signed}.{}", "A".repeat(43))
    }

    fn fill(&self, target: &str) -> String {
        target
            .replace("GOOD", &self.token)
            .replace("G%2ED", &self.token.replace('.', "%2E"))
            .replace("G%252ED", &self.token.replace('.', "%252E"))
            .replace("BAD", &self.bad())
    }

    /// Sends every row over both versions, and checks the forwarded request and the log record.
    async fn check_rows(self, rows: &[(&str, Outcome)]) {
        let host = self.tunnel.hostname();
        let mut table = Table::default();
        let (refused, served): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.1.0 != 200);
        for (target, fate) in &refused {
            let filled = self.fill(target);
            let h1 = self
                .engine
                .visitor()
                .http1(host)
                .await
                .get(&filled, host)
                .await;
            let h2 = self
                .engine
                .visitor()
                .h2(host)
                .await
                .get(&filled, host)
                .await;
            for (version, answer) in [("HTTP/1.1", h1), ("HTTP/2", h2)] {
                table.row([version, target], &answer.status, &fate.0);
                self.has_no_secret(answer.text(), target);
            }
        }
        assert_eq!(self.service.accepted(), 0, "the service was contacted");
        for (target, fate) in &served {
            let filled = self.fill(target);
            let h1 = self
                .engine
                .visitor()
                .http1(host)
                .await
                .get(&filled, host)
                .await;
            let h2 = self
                .engine
                .visitor()
                .h2(host)
                .await
                .get(&filled, host)
                .await;
            for (version, answer) in [("HTTP/1.1", h1), ("HTTP/2", h2)] {
                self.has_no_secret(answer.text(), target);
                let seen = answer.json();
                let was = (answer.status, seen["target"].as_str());
                table.row([version, target], &was, fate);
            }
        }
        table.assert_no_failures();
        let log = self.log.path().join("access.log");
        let token = self.token.clone();
        self.engine.stop().await;
        let log = std::fs::read_to_string(log).unwrap();
        let records: Vec<&str> = log.lines().collect();
        assert!(records.len() >= rows.len(), "{log}");
        for part in token.split('.') {
            let found = records.iter().find(|line| line.contains(part));
            assert_eq!(found, None, "the log contains part of a token");
        }
    }

    /// Every token here contains the claims and the signature of a valid token.
    #[track_caller]
    fn has_no_secret(&self, text: &str, case: &str) {
        let (_, signature) = self.token.rsplit_once('.').unwrap();
        assert!(!text.contains(signature), "{case}: {text}");
    }
}
