//! The way back from a sign-in (ED-2): to the requested page, in every tab of a browser.

use serde_json::json;

use super::session::{SignInRedirect, finish_sign_in, redirect, signed_in, start_sign_in};
use super::{Jar, Site, parameter, with_sessions};

/// Follows the redirects of a tab that is at the platform, until it is back at the tunnel. `jar`
/// holds the cookies that all tabs share.
async fn return_to_page(site: &Site, mut tab: SignInRedirect, jar: &mut Jar) -> String {
    for _ in 0..4 {
        let code = tab.code(site, &json!({}));
        let mut answer = finish_sign_in(site, &code, &tab.state, jar).await;
        jar.take(&answer);
        let location = answer.header("location").unwrap().to_owned();
        let own = format!("https://{}", site.host());
        let Some(target) = location.strip_prefix(&own) else {
            tab = redirect(site, &answer, jar);
            continue;
        };
        if !target.starts_with("/.well-known/svc/callback/") {
            return target.to_owned();
        }
        answer = site.open(target, jar).await;
        assert_eq!(answer.status, 302, "{}", answer.text());
        jar.take(&answer);
        let location = answer.header("location").unwrap();
        return location.strip_prefix(&own).unwrap().to_owned();
    }
    panic!("the sign-in does not end");
}

/// ED-2: two tabs sign in at the same time without disturbing each other.
#[tokio::test]
async fn ed_2_two_tabs_sign_in_together() {
    let site = Site::start(with_sessions()).await;
    let first = start_sign_in(&site, "/one", &Jar::default()).await;
    let second = start_sign_in(&site, "/two", &first.jar).await;
    assert_eq!(first.nonce, second.nonce);
    let mut jar = second.jar.clone();
    for (departure, path) in [(&second, "/two"), (&first, "/one")] {
        let code = departure.code(&site, &json!({}));
        let answer = finish_sign_in(&site, &code, &departure.state, &jar).await;
        assert_eq!(answer.status, 302, "{path}");
        let home = format!("https://{}{path}", site.host());
        assert_eq!(answer.header("location"), Some(home.as_str()));
        jar.take(&answer);
    }
}

/// ED-2: tabs that open before the browser has a secret. Each one sets its own, and the browser
/// keeps the last. All tabs reach their page, whichever returns first.
#[tokio::test]
async fn ed_2_tabs_that_open_together_all_sign_in() {
    let site = Site::start(with_sessions()).await;
    for is_reversed in [false, true] {
        let (mut tabs, mut jar) = (Vec::new(), Jar::default());
        for number in 0..10 {
            // A new jar: the request was sent before the browser received a cookie.
            let target = format!("/tab/{number}?{}", "q".repeat(number * 700 + 1));
            let answer = site.open(&target, &Jar::default()).await;
            jar.take(&answer);
            tabs.push((target, redirect(&site, &answer, &Jar::default())));
        }
        if is_reversed {
            tabs.reverse();
        }
        for (target, tab) in tabs {
            assert_eq!(return_to_page(&site, tab, &mut jar).await, target);
        }
        assert_eq!(site.get("/", &jar.field()).await.status, 200);
        assert!(!jar.has("__Host-svc_sign_in"));
    }
}

/// ED-2: a session that another tab started is used, whatever cookie of a sign-in the browser has.
#[tokio::test]
async fn ed_2_a_valid_session_precedes_a_sign_in_cookie() {
    let site = Site::start(with_sessions()).await;
    let early = start_sign_in(&site, "/early", &Jar::default()).await;
    let session = signed_in(&site).await;
    // A slow response of a third tab sets a cookie after the session started.
    let late = site.open("/late", &Jar::default()).await;
    let mut jar = session.clone();
    jar.take(&late);
    assert!(jar.has("__Host-svc_auth") && jar.has("__Host-svc_sign_in"));
    for code in [early.code(&site, &json!({})), "x".to_owned()] {
        let answer = finish_sign_in(&site, &code, &early.state, &jar).await;
        let home = format!("https://{}/early", site.host());
        assert_eq!(answer.header("location"), Some(home.as_str()), "{code}");
        assert_eq!(answer.header("set-cookie"), None);
    }
    // An account that may not use the project is refused, and the session remains.
    let eve = early.code(
        &site,
        &json!({"sub": "usr_eve", "nonce": parameter(late.header("location").unwrap(), "nonce")}),
    );
    let state = parameter(late.header("location").unwrap(), "state");
    let answer = finish_sign_in(&site, &eve, &state, &jar).await;
    assert_eq!(answer.status, 403);
    // An ended session is none.
    let out = site
        .send(
            "POST",
            "/.well-known/svc/logout",
            &format!("Content-Length: 0\r\n{}", session.field()),
        )
        .await;
    assert_eq!(out.status, 204);
    let answer = finish_sign_in(&site, "x", &early.state, &session).await;
    assert_eq!(answer.status, 403);
}

/// ED-2: a browser whose secret changes all the time is not redirected without end.
#[tokio::test]
async fn ed_2_a_sign_in_is_restarted_a_few_times_only() {
    let site = Site::start(with_sessions()).await;
    let mut tab = start_sign_in(&site, "/", &Jar::default()).await;
    for _ in 0..3 {
        let other = start_sign_in(&site, "/", &Jar::default()).await;
        let code = tab.code(&site, &json!({}));
        let answer = finish_sign_in(&site, &code, &tab.state, &other.jar).await;
        tab = redirect(&site, &answer, &other.jar);
    }
    let other = start_sign_in(&site, "/", &Jar::default()).await;
    let code = tab.code(&site, &json!({}));
    let answer = finish_sign_in(&site, &code, &tab.state, &other.jar).await;
    assert_eq!(answer.status, 403);
    // For its own secret the same code is valid.
    let answer = finish_sign_in(&site, &code, &tab.state, &tab.jar).await;
    assert_eq!(answer.status, 302);
}

/// ED-2: a browser always returns to the tunnel, however the target starts and however long it is.
#[tokio::test]
async fn ed_2_sign_in_never_redirects_to_another_host() {
    let site = Site::start(with_sessions()).await;
    let query = |length: usize| format!("/deep?{}", "x".repeat(length - 6));
    let (long, longer, longest) = (query(1400), query(1401), query(8192));
    let evil = format!("//evil.example/{}", "x".repeat(3000));
    for target in [
        "//evil.example/x",
        "/\\evil.example",
        "/@evil.example",
        &long,
        &longer,
        &longest,
        &evil,
    ] {
        let answer = site.open(target, &Jar::default()).await;
        let mut jar = Jar::default();
        jar.take(&answer);
        let tab = redirect(&site, &answer, &Jar::default());
        assert_eq!(return_to_page(&site, tab, &mut jar).await, target);
        assert!(!jar.field_for("/").contains("target"), "{target}");
    }
    assert_eq!(site.service.accepted(), 0);
}

/// ED-2: the browser keeps a target only if it can send the cookies back. Otherwise the path
/// remains.
#[tokio::test]
async fn ed_2_the_cookies_of_a_long_target_fit_into_a_head() {
    let limits = "limits: {url_bytes: 32768}\n";
    let site = Site::start_with(with_sessions(), limits).await;
    let query = |length: usize| format!("/deep?{}", "x".repeat(length - 6));
    for (target, wanted) in [
        (query(11_000), query(11_000)),
        (query(24_000), "/deep".to_owned()),
    ] {
        let answer = site.open(&target, &Jar::default()).await;
        let mut jar = Jar::default();
        jar.take(&answer);
        let tab = redirect(&site, &answer, &Jar::default());
        assert_eq!(return_to_page(&site, tab, &mut jar).await, wanted);
    }
}

/// ED-2: the route to a long target follows only addresses that this edge made for this host.
#[tokio::test]
async fn ed_2_the_way_to_a_long_target_cannot_be_forged() {
    let site = Site::start(with_sessions()).await;
    let target = format!("/deep?{}", "x".repeat(5000));
    let tab = start_sign_in(&site, &target, &Jar::default()).await;
    let code = tab.code(&site, &json!({}));
    let answer = finish_sign_in(&site, &code, &tab.state, &tab.jar).await;
    let own = format!("https://{}", site.host());
    let route = answer.header("location").unwrap().strip_prefix(&own);
    let route = route.unwrap();
    let (path, to) = route.split_once("?to=").unwrap();
    // Without its cookies, the path remains.
    let answer = site.open(route, &Jar::default()).await;
    let deep = format!("{own}/deep");
    assert_eq!(
        (answer.status, answer.header("location")),
        (302, Some(deep.as_str()))
    );
    let other = "/.well-known/svc/callback/0123456789abcdef";
    for bad in [
        format!("{other}?to={to}"),
        format!("{path}?to={}", tab.state),
        format!("{path}?to=x"),
        format!("{path}?to={to}&to={to}"),
        path.to_owned(),
    ] {
        let answer = site.open(&bad, &tab.jar).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (400, None),
            "{bad}"
        );
    }
    assert_eq!(
        site.send("POST", route, "Content-Length: 0\r\n")
            .await
            .status,
        405
    );
    // The service serves other paths below the callback.
    let answer = site.get("/.well-known/svc/callback/x", "").await;
    assert_eq!(answer.status, 401);
}
