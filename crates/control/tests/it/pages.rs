//! Properties of every page.

use http::{Method, StatusCode};
use serde_json::json;

use crate::support::{Answer, BASE_URL, PASSWORD, TestControl, both};

both! {
    every_page_is_locked_down_and_usable_without_scripts_or_a_mouse,
    every_page_has_the_contact_for_reports_of_abuse,
    failed_forms_announce_errors_to_screen_readers,
    unknown_paths_are_problems_and_not_pages,
    unknown_addresses_give_people_a_page,
    a_form_has_a_bound_and_one_value_a_field,
    bodies_of_programs_are_limited,
}

/// Every page in each of its states.
async fn all(control: &TestControl) -> Vec<(&'static str, Answer)> {
    let workspace = control.person("Ada").await.workspace;
    let mut nobody = control.browser();
    let mut ada = control.signed_in("Ada").await;
    let path = format!("/api/workspaces/{workspace}/invitations");
    let body = json!({"email": "grace@example.com", "role": "member"});
    let sent = ada.api(http::Method::POST, &path, body).await.json();
    let invitation = sent["url"]
        .as_str()
        .unwrap()
        .strip_prefix(BASE_URL)
        .unwrap()
        .to_owned();
    nobody
        .submit("/reset", &[("email", "ada@example.com")])
        .await;
    let mails = control.mails().await.join("\n");
    let reset = mails.split_whitespace().find_map(|word| {
        word.strip_prefix(BASE_URL)
            .filter(|path| path.starts_with("/reset/"))
    });
    let reset = reset.unwrap();
    let fields = [("client_id", "agent"), ("scope", "account.plan.read-only")];
    let device = nobody.submit("/oauth/device_authorization", &fields).await;
    let code = device.json()["user_code"].as_str().unwrap().to_owned();
    let device = [("user_code", code.as_str())];
    vec![
        ("login", nobody.open("/login").await),
        ("login again", nobody.sign_in("Ada", "wrong password").await),
        ("reset", nobody.open("/reset").await),
        (
            "reset again",
            nobody.submit("/reset", &[("email", "x")]).await,
        ),
        (
            "reset sent",
            nobody.submit("/reset", &[("email", "x@example.com")]).await,
        ),
        ("new password", nobody.open(reset).await),
        (
            "new password again",
            nobody.submit(reset, &[("password", "short")]).await,
        ),
        ("link gone", nobody.open("/reset/x").await),
        ("invitation", nobody.open(&invitation).await),
        ("invitation again", nobody.submit(&invitation, &[]).await),
        ("invitation of another", ada.open(&invitation).await),
        ("account", ada.open("/account?done=password").await),
        (
            "account again",
            ada.submit("/account/password", &[("new", "short")]).await,
        ),
        ("set up", ada.submit("/account/second-factor", &[]).await),
        (
            "set up again",
            ada.submit("/account/second-factor/confirm", &[]).await,
        ),
        (
            "consent",
            ada.open(&crate::access::oauth::authorize(&[])).await,
        ),
        ("no consent", ada.open("/oauth/authorize").await),
        ("device", ada.open("/device").await),
        (
            "device again",
            ada.submit("/device", &[("user_code", "BCDF-GHJK")]).await,
        ),
        ("device approval", ada.submit("/device", &device).await),
        ("foreign form", ada.submit_from("/logout", &[], &[]).await),
    ]
}

async fn every_page_is_locked_down_and_usable_without_scripts_or_a_mouse(control: TestControl) {
    for (name, page) in all(&control).await {
        let header = |name: &str| page.headers[name].to_str().unwrap();
        assert_eq!(header("content-type"), "text/html; charset=utf-8", "{name}");
        assert_eq!(header("cache-control"), "no-store", "{name}");
        assert_eq!(header("referrer-policy"), "same-origin", "{name}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{name}");
        let policy = header("content-security-policy");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{name}: {policy}"
        );
        let text = &page.text;
        assert!(
            text.starts_with("<!doctype html>\n<html lang=\"en\">"),
            "{name}: {text}"
        );
        // Except for passkeys, which need scripts. The other script only keeps a fragment.
        let fragment = "<script src=\"/fragment.js\" defer></script>";
        let script = "<script src=\"/passkeys.js\" defer></script>";
        let rest = text.replacen(script, "", 1).replacen(fragment, "", 1);
        assert!(!rest.contains("<script"), "{name}");
        let is_named = policy.contains("script-src 'self'") && !policy.contains("unsafe");
        let has_script = text.contains(script) || text.contains(fragment);
        assert!(is_named || !has_script, "{name}: {policy}");
        assert_eq!(text.matches("<h1>").count(), 1, "{name}");
        assert!(text.contains("(prefers-color-scheme: dark)"), "{name}");
        // Every field has a label, and every password field states its purpose to password
        // managers.
        for input in text.split("<input ").skip(1) {
            let input = input.split('>').next().unwrap();
            if input.contains("type=\"hidden\"") {
                continue;
            }
            let id = input
                .split("id=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            assert!(
                text.contains(&format!("<label for=\"{id}\">")),
                "{name}: {id}"
            );
            assert!(input.contains("autocomplete=\""), "{name}: {id}");
        }
        for form in text.split("<form ").skip(1) {
            assert!(
                form.starts_with("method=\"post\" action=\"/"),
                "{name}: {form}"
            );
        }
    }
}

/// Also pages that refuse, and the page of an unknown address.
async fn every_page_has_the_contact_for_reports_of_abuse(control: TestControl) {
    const LABEL: &str = "Report abuse";
    let without = control.browser().open("/login").await;
    assert!(!without.text.contains(LABEL), "{}", without.text);
    let mut config = control.app.config.clone();
    config.abuse_contact = Some("https://example.com/abuse".parse().unwrap());
    let control = control.restarted_with(config).await;
    let link = "<a href=\"https://example.com/abuse\" rel=\"noreferrer\">Report abuse</a>";
    let html = [("accept", "text/html")];
    let unknown = control
        .browser()
        .send(Method::GET, "/no-such-page", None, &html)
        .await;
    let mut pages = all(&control).await;
    pages.push(("unknown address", unknown));
    for (name, page) in pages {
        assert_eq!(page.text.matches(LABEL).count(), 1, "{name}: {}", page.text);
        let (_, footer) = page.text.split_once("<footer>").unwrap();
        assert!(footer.contains(link), "{name}: {footer}");
    }
}

/// The pages of the second factor need a user with one. The others are above.
async fn failed_forms_announce_errors_to_screen_readers(control: TestControl) {
    for (name, page) in all(&control).await {
        if name.ends_with("again") {
            assert!((400..500).contains(&page.status), "{name}");
            assert!(page.text.contains("role=\"alert\""), "{name}");
            assert!(page.text.contains("<title>Error: "), "{name}");
        }
        assert!(!page.text.contains(PASSWORD), "{name}");
    }
}

async fn unknown_paths_are_problems_and_not_pages(control: TestControl) {
    let answer = control.browser().open("/api/nothing").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.headers["content-type"], "application/problem+json");
}

/// A browser gets a page with a way back, and programs get JSON.
async fn unknown_addresses_give_people_a_page(control: TestControl) {
    let accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for (accept, is_page) in [
        (accept, true),
        ("TEXT/HTML", true),
        ("application/json", false),
        ("*/*", false),
        ("text/html;q=0, application/json", false),
    ] {
        let mut browser = control.browser();
        let headers = [("accept", accept)];
        let answer = browser.send(Method::GET, "/nothing", None, &headers).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        let kind = answer.header("content-type");
        assert_eq!(kind.starts_with("text/html"), is_page, "{accept}: {kind}");
        assert_eq!(answer.header("vary"), "accept");
        assert_eq!(answer.text.contains("href=\"/\""), is_page);
        assert_eq!(answer.text.contains("rel=\"icon\""), is_page);
    }
    let icon = control.browser().open("/favicon.ico").await;
    assert_eq!(icon.status, StatusCode::OK);
    assert_eq!(icon.header("content-type"), "image/svg+xml");
    assert!(icon.text.starts_with("<svg"), "{}", icon.text);
}

async fn a_form_has_a_bound_and_one_value_a_field(control: TestControl) {
    let mut browser = control.browser();
    let long = "a".repeat(40_000);
    let answer = browser.submit("/login", &[("email", &long)]).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let answer = browser
        .submit("/login", &[("email", "a"), ("email", "b")])
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

/// Forms of programs, and JSON bodies.
async fn bodies_of_programs_are_limited(control: TestControl) {
    for (bytes, is_read) in [(16_000, true), (17_000, false)] {
        let field = "a".repeat(bytes);
        let mut program = control.browser();
        let answer = program
            .submit_from("/oauth/token", &[("code", &field)], &[])
            .await;
        let answer = answer.expect(400);
        assert_eq!(answer["error"], "invalid_request");
        let description = answer["error_description"].as_str().unwrap();
        assert_eq!(!description.contains("too large"), is_read, "{description}");
    }
    let ada = control.person("Ada").await;
    for (bytes, status) in [(65_000, 400), (66_000, 413)] {
        let body = json!({"name": "a".repeat(bytes)});
        let answer = control.post("/api/workspaces", &ada.token, &body).await;
        assert_eq!(answer.problem().0, status);
    }
}
