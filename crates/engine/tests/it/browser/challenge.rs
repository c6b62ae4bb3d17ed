//! Challenges (ED-6): how a browser passes one, and requests that are refused instead.

use aws_lc_rs::digest;
use client::Properties;
use testing::ReceivedResponse;

use super::{Jar, PAGE, Site, parameter, received_values, with_sessions};

fn challenged() -> Properties {
    Properties::http().challenge_mode(true)
}

/// The value of a `data-` attribute of the page.
fn fact(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!(" data-{name}=\"")).unwrap();
    rest.split('"').next().unwrap().replace("&amp;", "&")
}

fn solve(page: &str) -> String {
    let (puzzle, bits) = (
        fact(page, "puzzle"),
        fact(page, "bits").parse::<u32>().unwrap(),
    );
    let solves = |number: &u64| {
        let hash = digest::digest(&digest::SHA256, format!("{puzzle}.{number}").as_bytes());
        let first: [u8; 4] = hash.as_ref()[..4].try_into().unwrap();
        u32::from_be_bytes(first).leading_zeros() >= bits
    };
    let number = (0..1 << 30).find(solves).unwrap();
    format!("{}?puzzle={puzzle}&number={number}", fact(page, "answer"))
}

/// Opens a page and follows the redirect to the challenge.
async fn page(site: &Site, target: &str) -> ReceivedResponse {
    let answer = site.open(target, &Jar::default()).await;
    assert_eq!(answer.status, 302);
    let location = answer.header("location").unwrap().to_owned();
    assert!(
        location.starts_with("/.well-known/svc/challenge?to="),
        "{location}"
    );
    let page = site.open(&location, &Jar::default()).await;
    assert_eq!(page.status, 200);
    page
}

/// ED-6.
#[tokio::test]
async fn ed_6_a_browser_solves_the_challenge_and_reaches_the_service() {
    let site = Site::start(challenged()).await;
    let page = page(&site, "/a?b=%20c").await;
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    let text = page.text();
    assert!(
        !text.contains("src=") && !text.contains("http://"),
        "no third-party content"
    );
    let home = format!("https://{}/a?b=%20c", site.host());
    assert_eq!(fact(text, "target"), home);
    let target = solve(text);
    let answer = site.send("POST", &target, "Content-Length: 0\r\n").await;
    assert_eq!(answer.status, 204);
    let mut jar = Jar::default();
    jar.take(&answer);
    assert!(jar.has("__Host-svc_challenge"));
    assert_eq!(site.service.accepted(), 0);
    let again = site.send("POST", &target, "Content-Length: 0\r\n").await;
    assert_eq!(again.status, 403, "a puzzle is valid once");

    let answer = site.open("/a?b=%20c", &jar).await;
    assert_eq!(answer.status, 200);
    assert!(
        received_values(&answer.json(), "cookie").is_empty(),
        "the edge's cookie is not forwarded"
    );
    assert_eq!(answer.json()["target"], "/a?b=%20c");
    // A visitor that passed may send every kind of request that a browser sends.
    let post = format!("{}Content-Length: 0\r\n", jar.field());
    assert_eq!(site.send("POST", "/", &post).await.status, 200);
    // A page that stays open does not solve a second challenge.
    let location = site.open("/x", &Jar::default()).await;
    let location = location.header("location").unwrap().to_owned();
    let answer = site.open(&location, &jar).await;
    let home = format!("https://{}/x", site.host());
    assert_eq!(
        (answer.status, answer.header("location")),
        (302, Some(home.as_str()))
    );
}

/// ED-6: a challenge is for pages. Other requests get an error, and a token bypasses the challenge.
#[tokio::test]
async fn ed_6_apis_get_an_error_and_tokens_pass() {
    let site = Site::start(challenged()).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AQ==\r\n\
                   Sec-WebSocket-Version: 13\r\n";
    for (method, fields, status, code) in [
        ("GET", String::new(), 403, "challenge_required"),
        ("GET", upgrade.to_owned(), 403, "challenge_required"),
        (
            "POST",
            "Content-Length: 0\r\n".to_owned(),
            403,
            "challenge_required",
        ),
        (
            "GET",
            "Authorization: Bearer no.good.token\r\n".to_owned(),
            401,
            "invalid_token",
        ),
        (
            "GET",
            format!("{PAGE}Authorization: Bearer no.good.token\r\n"),
            401,
            "",
        ),
    ] {
        let answer = site.send(method, "/", &fields).await;
        assert_eq!(answer.status, status, "{fields}");
        if !code.is_empty() {
            assert_eq!(answer.json()["code"], code);
            assert_eq!(
                answer.json()["reference"],
                answer.header("svc-reference").unwrap()
            );
        }
    }
    assert_eq!(site.service.accepted(), 0);
    let bearer = format!("Authorization: Bearer {}\r\n", site.token);
    let answer = site.get("/", &bearer).await;
    assert_eq!(answer.status, 200);
    assert!(received_values(&answer.json(), "authorization").is_empty());
    assert_eq!(
        received_values(&answer.json(), "svc-auth-method"),
        ["token"]
    );
    let answer = site.get(&format!("/?svc.token={}", site.token), PAGE).await;
    assert_eq!(answer.json()["target"], "/");
    // A token of a user without access.
    let (_, token) = site.platform.add_pat("usr_eve");
    site.engine.wait_for_changes().await;
    let answer = site
        .get("/", &format!("Authorization: Bearer {token}\r\n"))
        .await;
    assert_eq!(answer.status, 403);
}

/// ED-6: the challenge comes before the session. A token that replaces the challenge does not
/// replace the session.
#[tokio::test]
async fn ed_6_the_challenge_precedes_the_sign_in() {
    let properties = with_sessions().challenge_mode(true);
    let site = Site::start(properties).await;
    let text = page(&site, "/").await;
    let answer = site
        .send("POST", &solve(text.text()), "Content-Length: 0\r\n")
        .await;
    let mut jar = Jar::default();
    jar.take(&answer);
    let answer = site.open("/", &jar).await;
    assert_eq!(answer.status, 302);
    assert!(parameter(answer.header("location").unwrap(), "nonce").len() == 43);
    let bearer = format!("Authorization: Bearer {}\r\n", site.token);
    assert_eq!(site.get("/", &bearer).await.status, 401);
    assert_eq!(site.service.accepted(), 0);
}

/// ED-6: a challenge never redirects to an address that an attacker put into its URL.
#[tokio::test]
async fn ed_6_a_challenge_redirects_to_the_requested_page_only() {
    let site = Site::start(challenged()).await;
    for query in [
        "",
        "?to=https://evil.example/",
        "?to=//evil.example",
        "?to=x&to=y",
    ] {
        let page = site
            .open(
                &format!("/.well-known/svc/challenge{query}"),
                &Jar::default(),
            )
            .await;
        let home = format!("https://{}/", site.host());
        assert_eq!(fact(page.text(), "target"), home, "{query}");
    }
    // Text from a visitor is escaped.
    let page = page(&site, "/?a=\"><script>alert(1)</script>").await;
    assert!(!page.text().contains("<script>alert"), "{}", page.text());
    let wrong = "/.well-known/svc/challenge?puzzle=x&number=1";
    let cross = "Content-Length: 0\r\nOrigin: https://evil.example\r\n";
    for (target, fields, status) in [
        (wrong, "Content-Length: 0\r\n", 403),
        ("/.well-known/svc/challenge", "Content-Length: 0\r\n", 400),
        (wrong, cross, 403),
    ] {
        let answer = site.send("POST", target, fields).await;
        assert_eq!(answer.status, status, "{target} {fields}");
    }
}

/// ED-6: a query that does not fit into the address of the challenge is kept.
#[tokio::test]
async fn ed_6_a_long_query_survives_the_challenge() {
    let site = Site::start(challenged()).await;
    let target = format!("/a?{}", "b".repeat(8000));
    let answer = site.open(&target, &Jar::default()).await;
    let mut jar = Jar::default();
    jar.take(&answer);
    let location = answer.header("location").unwrap();
    assert!(location.len() < 4096);
    let page = site.open(location, &jar).await;
    let own = format!("https://{}", site.host());
    let route = fact(page.text(), "target");
    let route = route.strip_prefix(&own).unwrap();
    let answer = site.open(route, &jar).await;
    let home = format!("{own}{target}");
    assert_eq!(answer.header("location"), Some(home.as_str()));
    assert_eq!(site.service.accepted(), 0);
    // Scripts and parts of pages are not redirected.
    let answer = site
        .get("/", &format!("{PAGE}Sec-Fetch-Mode: no-cors\r\n"))
        .await;
    assert_eq!((answer.status, answer.header("location")), (403, None));
}
