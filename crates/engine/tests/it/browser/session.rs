//! Browser sessions (ED-2): sign-in, the requests that a session authorises, and the end of a
//! session.

use std::sync::Arc;

use api::link::{Item, Membership, Person, Record};
use client::{Properties, Target};
use engine::clock::ManualClock;
use serde_json::{Value, json};
use testing::{ReceivedResponse, TestTunnel, Upstream, within};

use super::{A, Jar, PAGE, Site, parameter, received_values, with_sessions};

/// The sign-in address to which a browser was redirected.
pub(super) struct SignInRedirect {
    pub(super) nonce: String,
    pub(super) state: String,
    pub(super) jar: Jar,
}

/// Opens a page without a session.
pub(super) async fn start_sign_in(site: &Site, target: &str, jar: &Jar) -> SignInRedirect {
    let answer = site.open(target, jar).await;
    assert_eq!(answer.status, 302, "{answer:?}");
    redirect(site, &answer, jar)
}

/// The redirect to the platform in an answer.
pub(super) fn redirect(site: &Site, answer: &ReceivedResponse, jar: &Jar) -> SignInRedirect {
    assert_eq!(answer.status, 302, "{}", answer.text());
    let location = answer.header("location").unwrap();
    let page = format!(
        "{}/edge/sign-in?host={}&",
        site.platform.base_url(),
        site.host()
    );
    assert!(location.starts_with(&page), "{location}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(location.len() < 3072 && parameter(location, "state").len() <= 2048);
    let mut jar = jar.clone();
    jar.take(answer);
    SignInRedirect {
        nonce: parameter(location, "nonce"),
        state: parameter(location, "state"),
        jar,
    }
}

impl SignInRedirect {
    pub(super) fn code(&self, site: &Site, more: &Value) -> String {
        let mut claims = json!({"aud": format!("https://{}", site.host()), "nonce": self.nonce});
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        site.platform.code(claims)
    }
}

pub(super) async fn finish_sign_in(
    site: &Site,
    code: &str,
    state: &str,
    jar: &Jar,
) -> ReceivedResponse {
    let target = format!("/.well-known/svc/callback?code={code}&state={state}");
    site.open(&target, jar).await
}

/// A browser that has signed in.
pub(super) async fn signed_in(site: &Site) -> Jar {
    let departure = start_sign_in(site, "/", &Jar::default()).await;
    let code = departure.code(site, &json!({}));
    let answer = finish_sign_in(site, &code, &departure.state, &departure.jar).await;
    assert_eq!(answer.status, 302, "{}", answer.text());
    let mut jar = departure.jar;
    jar.take(&answer);
    jar
}

/// ED-2, ED-5.
#[tokio::test]
async fn ed_2_a_person_signs_in_and_the_service_receives_their_identity() {
    let site = Site::start(with_sessions()).await;
    let departure =
        start_sign_in(&site, "/reports/7?page=2&svc.token=a.b.c", &Jar::default()).await;
    assert!(departure.jar.has("__Host-svc_sign_in") && !departure.jar.has("__Host-svc_auth"));
    let code = departure.code(&site, &json!({}));
    let answer = finish_sign_in(&site, &code, &departure.state, &departure.jar).await;
    assert_eq!(answer.status, 302);
    let home = format!("https://{}/reports/7?page=2", site.host());
    assert_eq!(answer.header("location"), Some(home.as_str()));
    let mut jar = departure.jar.clone();
    jar.take(&answer);
    assert!(jar.has("__Host-svc_auth") && !jar.has("__Host-svc_sign_in"));
    assert_eq!(
        site.service.accepted(),
        0,
        "no request reached the service so far"
    );

    let mut fields = jar.field();
    fields.insert_str("Cookie: ".len(), "theirs=1; ");
    let answer = site
        .get("/", &format!("{fields}svc-user-id: root\r\n"))
        .await;
    assert_eq!(answer.status, 200);
    let saw = answer.json();
    assert_eq!(received_values(&saw, "svc-user-id"), ["usr_ann"]);
    assert_eq!(received_values(&saw, "svc-auth-method"), ["session"]);
    assert!(received_values(&saw, "svc-credential-id").is_empty());
    assert_eq!(
        received_values(&saw, "cookie"),
        ["theirs=1"],
        "the edge's cookies stay at the edge"
    );
    // The same over HTTP/2.
    let mut visitor = site.engine.visitor().h2(site.host()).await;
    let address = format!("https://{}/", site.host());
    let field = jar.field();
    let request = http::Request::get(address)
        .header("cookie", field.trim_start_matches("Cookie: ").trim())
        .body(testing::H2Visitor::empty())
        .unwrap();
    let response = visitor.send(request).await.unwrap();
    assert_eq!(response.status(), 200);
}

/// ED-2: a request that does not open a page in a browser gets a JSON error.
#[tokio::test]
async fn ed_2_only_a_page_is_sent_to_sign_in() {
    let site = Site::start(with_sessions()).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AQ==\r\n\
                   Sec-WebSocket-Version: 13\r\n";
    for (method, fields, status) in [
        ("GET", PAGE.to_owned(), 302),
        ("HEAD", PAGE.to_owned(), 302),
        ("GET", String::new(), 401),
        ("GET", "Accept: application/json\r\n".to_owned(), 401),
        ("POST", format!("{PAGE}Content-Length: 0\r\n"), 401),
        ("GET", format!("{PAGE}{upgrade}"), 401),
        ("GET", format!("{PAGE}Authorization: Bearer x\r\n"), 302),
        ("GET", format!("{PAGE}Sec-Fetch-Mode: navigate\r\n"), 302),
        ("GET", format!("{PAGE}Sec-Fetch-Mode: cors\r\n"), 401),
        ("GET", format!("{PAGE}Sec-Fetch-Mode: no-cors\r\n"), 401),
        ("GET", format!("{PAGE}sec-fetch-mode: same-origin\r\n"), 401),
        ("GET", format!("{PAGE}Sec-Fetch-Mode: websocket\r\n"), 401),
        ("HEAD", format!("{PAGE}Sec-Fetch-Mode: cors\r\n"), 401),
        (
            "GET",
            format!("{PAGE}Sec-Fetch-Mode: navigate\r\nSec-Fetch-Mode: cors\r\n"),
            401,
        ),
    ] {
        let host = site.host();
        let mut visitor = site.engine.visitor().http1(host).await;
        visitor.request(method, "/", host, &fields).await;
        let answer = visitor.head().await;
        assert_eq!(answer.status, status, "{method} {fields}");
        if status == 401 {
            assert!(
                answer
                    .header("svc-reference")
                    .is_some_and(|id| id.len() == 24)
            );
            assert_eq!(answer.header("set-cookie"), None, "{method} {fields}");
        }
    }
    assert_eq!(site.service.accepted(), 0);
}

/// ED-2: a code is valid once, at one host, in one browser, for a minute.
#[tokio::test]
async fn ed_2_a_code_is_valid_for_one_browser_and_host_once() {
    let site = Site::start(with_sessions()).await;
    let ours = start_sign_in(&site, "/", &Jar::default()).await;
    let theirs = start_sign_in(&site, "/theirs", &Jar::default()).await;
    assert_ne!(ours.nonce, theirs.nonce);
    let now = i64::try_from(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs(),
    )
    .unwrap();
    let good = ours.code(&site, &json!({}));
    let nobody = Jar::default();
    // Session fixation with another user's code, state or browser.
    for (code, state, jar) in [
        (&good, &ours.state, &nobody),
        (&good, &theirs.state, &ours.jar),
        (&theirs.code(&site, &json!({})), &ours.state, &ours.jar),
    ] {
        let answer = finish_sign_in(&site, code, state, jar).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(answer.header("set-cookie").is_none());
    }
    // A browser with a sign-in of its own begins again, for its own secret. It can be a second tab.
    for (departure, other) in [(&ours, &theirs), (&theirs, &ours)] {
        let code = departure.code(&site, &json!({}));
        let answer = finish_sign_in(&site, &code, &departure.state, &other.jar).await;
        let again = redirect(&site, &answer, &other.jar);
        assert_eq!(again.nonce, other.nonce);
        assert!(answer.header("set-cookie").is_none());
    }
    for wrong in [
        json!({"aud": "https://other-aaaaaaaa.t.engine.localhost"}),
        json!({"aud": site.host()}),
        json!({"iss": "https://another.example"}),
        json!({"nonce": ""}),
        json!({"iat": now - 120, "exp": now - 60}),
        json!({"iat": now + 60, "exp": now + 120}),
        json!({"iat": now, "exp": now + 3600}),
        json!({"jti": ""}),
        json!({"exp": "soon"}),
    ] {
        let code = ours.code(&site, &wrong);
        let answer = finish_sign_in(&site, &code, &ours.state, &ours.jar).await;
        assert_eq!(answer.status, 403, "{wrong}");
    }
    let claims = json!({"aud": format!("https://{}", site.host()), "nonce": ours.nonce});
    let as_token = site.platform.code_as("JWT", claims);
    for (code, state) in [
        (as_token.as_str(), ours.state.as_str()),
        (&site.token, &ours.state),
        ("x", &ours.state),
        (&good, "x"),
        (&good, ""),
        (&format!("{good}&code={good}"), &ours.state),
    ] {
        let answer = finish_sign_in(&site, code, state, &ours.jar).await;
        assert_eq!(answer.status, 403, "{code} {state}");
    }
    // After all these attempts the code still works, once.
    let answer = finish_sign_in(&site, &good, &ours.state, &ours.jar).await;
    assert_eq!(answer.status, 302);
    let answer = finish_sign_in(&site, &good, &ours.state, &ours.jar).await;
    assert_eq!(answer.status, 403, "replayed");
    assert_eq!(site.service.accepted(), 0);
}

/// ED-2: a signed-in user that is not a member of the project.
#[tokio::test]
async fn ed_2_only_members_of_the_project_get_a_session() {
    let site = Site::start(with_sessions()).await;
    let departure = start_sign_in(&site, "/", &Jar::default()).await;
    for user in ["usr_eve", "usr_nobody"] {
        let code = departure.code(&site, &json!({"sub": user}));
        let answer = finish_sign_in(&site, &code, &departure.state, &departure.jar).await;
        assert_eq!(answer.status, 403, "{user}");
        assert!(answer.header("set-cookie").is_none());
        assert!(
            answer.text().contains("may not use this project"),
            "{}",
            answer.text()
        );
    }
}

/// ED-2: the user's access is checked again at every request.
#[tokio::test]
async fn ed_2_a_session_ends_with_the_role_the_account_or_a_sign_out() {
    let site = Site::start(with_sessions()).await;
    let jar = signed_in(&site).await;
    let status = async || site.get("/", &jar.field()).await.status;
    assert_eq!(status().await, 200);
    let set_roles = |permissions: &[&str], sessions_after| {
        let permissions = permissions.iter().map(|&name| name.to_owned()).collect();
        let workspace_id = format!("wks_{A}");
        site.platform.send(vec![Item::Person(Person {
            id: "usr_ann".to_owned(),
            name: String::new(),
            memberships: vec![Membership {
                workspace_id,
                permissions,
                role: None,
            }],
            sessions_after,
        })]);
    };
    set_roles(&["tunnels.resources.read-only"], 0);
    site.engine.wait_for_changes().await;
    assert_eq!(status().await, 403);
    set_roles(&["tunnels.streams.create-delete"], 0);
    site.engine.wait_for_changes().await;
    assert_eq!(status().await, 200);
    set_roles(&["tunnels.streams.create-delete"], i64::MAX / 2);
    site.engine.wait_for_changes().await;
    assert_eq!(status().await, 401);
    set_roles(&["tunnels.streams.create-delete"], 0);
    site.engine.wait_for_changes().await;
    assert_eq!(status().await, 200);
    site.platform.send(vec![Item::PersonGone {
        id: "usr_ann".to_owned(),
    }]);
    site.engine.wait_for_changes().await;
    assert_eq!(status().await, 401);
}

/// ED-2: a session of one tunnel is not valid for another tunnel of the same project.
#[tokio::test]
async fn ed_2_a_session_is_of_one_host() {
    let site = Site::start(with_sessions()).await;
    let jar = signed_in(&site).await;
    let agent = site.engine.agent_at(A, &site.token).await;
    let target: client::Target = site.service.addr().to_string().parse().unwrap();
    let other = testing::TestTunnel::open(agent, with_sessions(), target).await;
    let host = other.hostname();
    let mut visitor = site.engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, &jar.field()).await;
    assert_eq!(visitor.answer().await.status, 401);
    assert_eq!(site.service.accepted(), 0);
}

/// With the name and the address only if the tunnel requests them: the platform of this test states
/// them at every sign-in, as one of an earlier version.
#[tokio::test]
async fn the_session_route_returns_the_signed_in_user() {
    let site = Site::start(with_sessions()).await;
    let jar = signed_in(&site).await;
    let answer = site.get("/.well-known/svc/session", &jar.field()).await;
    assert_eq!(answer.json()["user"], json!({"userId": "usr_ann"}));

    let identity = vec!["email".to_owned(), "name".to_owned()];
    let properties = with_sessions().identity(identity);
    let site = Site::start_with(properties, "compat: {rstream: true}").await;
    let jar = signed_in(&site).await;
    let route = "/.well-known/svc/session";
    let answer = site.get(route, "").await;
    assert_eq!(
        (answer.status, answer.header("cache-control")),
        (200, Some("no-store"))
    );
    let stranger = json!({
        "auth": {"authenticated": false},
        "tunnel": {"host": site.host()},
        "policies": ["svc-auth"],
    });
    assert_eq!(answer.json(), stranger);
    let known = |policy: &str| {
        json!({
            "auth": {"authenticated": true, "method": "session"},
            "user": {"userId": "usr_ann", "name": "Ann", "email": "ann@example.com"},
            "tunnel": {
                "host": site.host(),
                "workspaceId": "wks_aaaaaaaa",
                "projectId": "prj_aaaaaaaa",
            },
            "policies": [policy],
        })
    };
    assert_eq!(
        site.get(route, &jar.field()).await.json(),
        known("svc-auth")
    );
    let compat = "/.well-known/rstream/session";
    assert_eq!(
        site.get(compat, &jar.field()).await.json(),
        known("rstream-auth")
    );
    for (method, target, status) in [
        ("POST", route, 405),
        ("POST", "/.well-known/svc/callback", 405),
        ("GET", "/.well-known/svc/callback", 403),
        ("GET", "/.well-known/svc/challenge", 404),
    ] {
        let answer = site.send(method, target, "Content-Length: 0\r\n").await;
        assert_eq!(answer.status, status, "{method} {target}");
        // RFC 9110 section 15.5.6.
        let is_told = answer
            .header("allow")
            .is_some_and(|allow| allow.contains("GET"));
        assert_eq!(is_told, status == 405, "{method} {target}");
    }
    assert_eq!(site.service.accepted(), 0, "the edge serves these routes");
    // The service serves every other path below it.
    let answer = site.get("/.well-known/svc/else", &jar.field()).await;
    assert_eq!(answer.json()["target"], "/.well-known/svc/else");
}

#[tokio::test]
async fn signing_out_only_works_from_pages_of_the_same_origin() {
    let site = Site::start(with_sessions()).await;
    let jar = signed_in(&site).await;
    let route = "/.well-known/svc/logout";
    let page = site.open(route, &jar).await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<button>Sign out</button>"));
    let (ours, host) = (format!("https://{}", site.host()), site.host());
    for (fields, status) in [
        (format!("Origin: {ours}\r\n"), 204),
        (format!("Referer: {ours}/a?b\r\n"), 204),
        (String::new(), 204),
        ("Sec-Fetch-Site: same-origin\r\n".to_owned(), 204),
        ("Origin: null\r\n".to_owned(), 403),
        ("Origin: https://evil.example\r\n".to_owned(), 403),
        (format!("Origin: https://{host}.evil.example\r\n"), 403),
        (
            format!("Origin: {ours}\r\nReferer: https://evil.example/\r\n"),
            403,
        ),
        (format!("Referer: {ours}.evil.example/\r\n"), 403),
        ("Sec-Fetch-Site: cross-site\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: same-site\r\n".to_owned(), 403),
    ] {
        let fields = format!("Content-Length: 0\r\n{fields}{}", jar.field());
        let answer = site.send("POST", route, &fields).await;
        assert_eq!(answer.status, status, "{fields}");
        let mut left = jar.clone();
        left.take(&answer);
        assert_eq!(left.has("__Host-svc_auth"), status != 204, "{fields}");
    }
    let answer = site
        .send("POST", &format!("{route}?page"), "Content-Length: 0\r\n")
        .await;
    let next = answer.header("location").unwrap();
    assert_eq!(
        (answer.status, next),
        (303, "/.well-known/svc/logout?signed-out")
    );
    assert!(
        site.get(next, PAGE)
            .await
            .text()
            .contains("You are signed out")
    );
    assert_eq!(site.service.accepted(), 0);
}

/// A browser sends its session cookie to any service at the host. Therefore another owner cannot
/// open a tunnel that forwards raw bytes there as long as sessions of the host may exist, even if
/// the tunnel at which they started is offline.
#[tokio::test]
async fn ed_2_a_cookie_does_not_reach_another_publisher() {
    let clock = Arc::new(ManualClock::at(jiff::Timestamp::now()));
    let site = Site::start_at(with_sessions(), Arc::<ManualClock>::clone(&clock)).await;
    let departure = start_sign_in(&site, "/", &Jar::default()).await;
    let code = departure.code(&site, &json!({}));
    let answer = finish_sign_in(&site, &code, &departure.state, &departure.jar).await;
    let mut jar = departure.jar;
    jar.take(&answer);
    // A return that the existing session completes starts no session, and so extends nothing.
    clock.advance(60);
    let answer = finish_sign_in(&site, "x", &departure.state, &jar).await;
    assert_eq!((answer.status, answer.header("set-cookie")), (302, None));
    let host = site.host().to_owned();
    let Site {
        platform,
        engine,
        tunnel,
        service,
        ..
    } = site;
    let publisher = tunnel.agent().clone();
    tunnel.close().await;
    platform.add_member("usr_mal", &[A]);
    let (_, token) = platform.add_pat("usr_mal");
    let other = engine.agent_at(A, &token).await;
    let raw = || Properties::tls().hostname(host.clone());
    let mut refused = other.open(raw());
    let refused = within("refusal", refused.online()).await.unwrap_err();
    assert!(format!("{refused:?}").contains("signed in"), "{refused:?}");
    // An HTTP tunnel never forwards the cookie, and the owner of the cookie may receive it.
    let target = || service.addr().to_string().parse::<Target>().unwrap();
    let http = Properties::http().hostname(host.clone());
    TestTunnel::open(other.clone(), http, target())
        .await
        .close()
        .await;
    TestTunnel::open(publisher, raw(), target())
        .await
        .close()
        .await;
    // Until the sessions have expired.
    clock.advance(engine::browser::SESSION_SECONDS - 60);
    TestTunnel::open(other, raw(), target()).await;
}

/// A session cookie, and an upgrade that the peer keeps open.
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
    Sec-Fetch-Site: same-origin\r\n";

/// ED-2: signing out at the tunnel or at the platform ends the session for every copy of the
/// cookie, and closes the connections that the session authorised.
#[tokio::test]
async fn ed_2_a_signed_out_session_ends_for_every_copy_of_its_cookie() {
    for ended in ["at the tunnel", "ses_1", "edge:code1"] {
        let mut site = Site::start(with_sessions()).await;
        let sockets = Upstream::websocket().await;
        let target: Target = sockets.addr().to_string().parse().unwrap();
        let agent = site.tunnel.agent().clone();
        let properties = with_sessions().named("sockets");
        site.tunnel = TestTunnel::open(agent, properties, target).await;
        let departure = start_sign_in(&site, "/", &Jar::default()).await;
        let claims = json!({"jti": "code1", "sid": "ses_1"});
        let code = departure.code(&site, &claims);
        let answer = finish_sign_in(&site, &code, &departure.state, &departure.jar).await;
        assert_eq!(answer.status, 302, "{}", answer.text());
        let mut jar = departure.jar;
        jar.take(&answer);
        let host = site.host().to_owned();
        let mut socket = site.engine.visitor().http1(&host).await;
        let fields = format!("{WEBSOCKET}{}", jar.field());
        socket.request("GET", "/", &host, &fields).await;
        assert_eq!(socket.head().await.status, 101);

        if ended == "at the tunnel" {
            let fields = format!("Content-Length: 0\r\n{}", jar.field());
            let answer = site.send("POST", "/.well-known/svc/logout", &fields).await;
            assert_eq!(answer.status, 204);
            // The platform is notified, so that other engines end the session, and this one after a
            // restart.
            let report = site.platform.wait_for_record(|record| match record {
                Record::SessionEnded(ended) => Some(ended.id.clone()),
                _ => None,
            });
            assert_eq!(within("a record", report).await, "code1");
        } else {
            // Sign-out at the platform, or at another engine.
            site.platform.revoke_token(ended);
            site.engine.wait_for_changes().await;
        }
        within("the end of the socket", socket.read_to_end()).await;
        let copied = site.get("/", &jar.field()).await;
        assert_eq!(copied.status, 401, "{ended}");
        // Another session of the user continues.
        let fresh = signed_in(&site).await;
        let upgraded = format!("{WEBSOCKET}{}", fresh.field());
        let mut socket = site.engine.visitor().http1(&host).await;
        socket.request("GET", "/", &host, &upgraded).await;
        assert_eq!(socket.head().await.status, 101);
    }
}

/// ED-2: browsers also send the cookie with requests from pages of another tenant's tunnel.
#[tokio::test]
async fn ed_2_pages_of_other_origins_change_nothing_in_a_session() {
    let listed = with_sessions().allowed_origins(vec!["https://app.example.com".to_owned()]);
    let site = Site::start(listed).await;
    let jar = signed_in(&site).await;
    let own = format!("https://{}", site.host());
    for (fields, status) in [
        ("", 403),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        (&format!("Origin: {own}\r\n"), 200),
        ("Origin: https://app.example.com\r\n", 200),
        ("Origin: https://evil-bbbbbbbb.t.engine.localhost\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        let before = site.service.accepted();
        let asked = format!("Content-Length: 0\r\n{fields}{}", jar.field());
        let answer = site.send("POST", "/", &asked).await;
        assert_eq!(answer.status, status, "{fields}");
        if status == 403 {
            assert_eq!(answer.json()["code"], "cross_site_request");
            assert_eq!(
                site.service.accepted(),
                before,
                "the service receives nothing"
            );
        }
        // Reading is allowed, and a bearer token is not a cookie.
        let read = site.get("/", &format!("{fields}{}", jar.field())).await;
        assert_eq!(read.status, 200, "{fields}");
    }
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AQ==\r\n\
        Sec-WebSocket-Version: 13\r\nOrigin: https://evil.example\r\n";
    let answer = site.get("/", &format!("{upgrade}{}", jar.field())).await;
    assert_eq!(answer.status, 403);
    let mut visitor = site.engine.visitor().h2(site.host()).await;
    let field = jar.field();
    let request = http::Request::post(format!("{own}/"))
        .header("cookie", field.trim_start_matches("Cookie: ").trim())
        .header("origin", "https://evil.example")
        .body(testing::H2Visitor::empty())
        .unwrap();
    assert_eq!(visitor.send(request).await.unwrap().status(), 403);
}
