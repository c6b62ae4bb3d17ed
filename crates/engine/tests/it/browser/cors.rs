//! CORS at tunnels that need a credential.

use api::control::settings::PublicAccessPolicy;
use client::Properties;
use testing::ReceivedResponse;

use super::{A, Jar, Site, with_sessions};

const PAGE: &str = "https://app.example.com";

fn listed(properties: Properties) -> Properties {
    properties.allowed_origins(vec![PAGE.to_owned()])
}

async fn preflight(site: &Site, fields: &str) -> ReceivedResponse {
    site.send("OPTIONS", "/api?x=1", fields).await
}

fn asks(origin: &str, method: &str) -> String {
    format!("Origin: {origin}\r\nAccess-Control-Request-Method: {method}\r\n")
}

/// A browser sends a preflight without a credential. The edge answers it, and the service receives
/// only the request after it.
#[tokio::test]
async fn the_edge_answers_preflights_of_listed_pages() {
    for properties in [
        Properties::http().token_auth(true),
        with_sessions(),
        Properties::http().challenge_mode(true),
    ] {
        let site = Site::start(listed(properties)).await;
        let names = "Access-Control-Request-Headers: authorization, x-own\r\n";
        let answer = preflight(&site, &format!("{}{names}", asks(PAGE, "PUT"))).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
        for (name, value) in [
            ("access-control-allow-origin", PAGE),
            ("access-control-allow-methods", "PUT"),
            ("access-control-allow-headers", "authorization, x-own"),
            ("access-control-allow-credentials", "true"),
            ("vary", "Origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
        assert!(answer.header("set-cookie").is_none());
        assert_eq!(site.service.accepted(), 0);
    }
}

/// A listed page reads why it was refused. With a token the service answers, and its own fields
/// decide.
#[tokio::test]
async fn listed_pages_read_refusals() {
    let site = Site::start(listed(Properties::http().token_auth(true))).await;
    let origin = format!("Origin: {PAGE}\r\n");
    for (fields, status) in [
        (origin.clone(), 401),
        (
            format!("{origin}Authorization: Bearer no.good.token\r\n"),
            401,
        ),
    ] {
        let answer = site.get("/", &fields).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE));
        let readable = answer.header("access-control-expose-headers").unwrap();
        assert!(readable.contains("www-authenticate"), "{readable}");
        assert_eq!(answer.header("vary"), Some("Origin"));
    }
    assert_eq!(site.service.accepted(), 0);
    let bearer = format!("{origin}Authorization: Bearer {}\r\n", site.token);
    let answer = site.get("/", &bearer).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    // Over HTTP/2 as well.
    let mut visitor = site.engine.visitor().h2(site.host()).await;
    let request = http::Request::options(format!("https://{}/", site.host()))
        .header("origin", PAGE)
        .header("access-control-request-method", "POST")
        .body(testing::H2Visitor::empty())
        .unwrap();
    let answer = visitor.send(request).await.unwrap();
    assert_eq!(answer.status(), 204);
    assert_eq!(answer.headers()["access-control-allow-origin"], PAGE);
}

/// All other pages get what programs get, and cannot read it.
#[tokio::test]
async fn other_pages_are_refused_without_cors_fields() {
    let site = Site::start(listed(Properties::http().token_auth(true))).await;
    for fields in [
        asks("https://evil.example", "GET"),
        asks("null", "GET"),
        asks("https://app.example.com.evil.example", "GET"),
        asks("https://app.example.com:444", "GET"),
        asks("http://app.example.com", "GET"),
        asks("https://app.example.com/", "GET"),
        format!("Origin: https://evil.example\r\n{}", asks(PAGE, "GET")),
    ] {
        let answer = preflight(&site, &fields).await;
        assert_eq!(answer.status, 401, "{fields}");
        assert_eq!(
            answer.header("access-control-allow-origin"),
            None,
            "{fields}"
        );
    }
    // A request that is not a preflight, and a malformed one, are refused like any other.
    for fields in [
        format!("Origin: {PAGE}\r\n"),
        asks(PAGE, "GE T"),
        format!(
            "{}Access-Control-Request-Method: PUT\r\n",
            asks(PAGE, "GET")
        ),
    ] {
        let answer = preflight(&site, &fields).await;
        assert_eq!(answer.status, 401, "{fields}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE));
        assert_eq!(
            answer.header("access-control-allow-methods"),
            None,
            "{fields}"
        );
    }
    assert_eq!(site.service.accepted(), 0);
}

/// The rules about a visitor's address and the project's policy precede the preflight, the identity
/// of a user stays on the pages of the tunnel, and an open tunnel's service answers preflights
/// itself.
#[tokio::test]
async fn preflights_do_not_bypass_other_rules() {
    let elsewhere = vec!["198.51.100.0/24".to_owned()];
    let restricted = Properties::http().token_auth(true).trusted_ips(elsewhere);
    let site = Site::start(listed(restricted)).await;
    let answer = preflight(&site, &asks(PAGE, "GET")).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.header("access-control-allow-methods"), None);

    let site = Site::start(listed(Properties::http().token_auth(true))).await;
    site.platform.add_project_with(A, |project| {
        project.settings.public_access_policy = PublicAccessPolicy::Forbidden;
    });
    site.engine.wait_for_changes().await;
    let answer = preflight(&site, &asks(PAGE, "GET")).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["code"], "public_access_not_allowed");
    assert_eq!(answer.header("access-control-allow-methods"), None);

    let site = Site::start(listed(with_sessions())).await;
    let origin = format!("Origin: {PAGE}\r\n");
    let answer = site.get("/.well-known/svc/session", &origin).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let page = format!("{origin}Accept: text/html\r\n{}", Jar::default().field());
    let answer = site.get("/", &page).await;
    assert_eq!(answer.status, 302);
    assert_eq!(answer.header("access-control-allow-origin"), None);

    let site = Site::start(listed(Properties::http())).await;
    let answer = preflight(&site, &asks(PAGE, "GET")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["method"], "OPTIONS");
}
