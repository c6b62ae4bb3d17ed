//! Clients that describe themselves in a metadata document (OAuth Client ID Metadata Document).

use http::Method;
use serde_json::{Value, json};

use super::{authorize, code, error, press, program, redeem, with_token};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{Answer, CALLBACK, TestControl, both};

both! {
    a_client_is_described_by_the_document_at_its_address,
    a_token_of_such_a_client_is_valid_while_the_configuration_accepts_them,
}

/// A platform that accepts documents from a server on loopback, and that server.
async fn world(control: TestControl) -> (TestControl, Receiver) {
    let ca_file = control.directory().join("client.pem");
    let receiver = Receiver::start(&ca_file).await;
    let control = control.configured(sections(&ca_file, true)).await;
    control.person("Ada").await;
    receiver.always(document(&description(&receiver)));
    (control, receiver)
}

fn sections(ca_file: &std::path::Path, is_on: bool) -> Value {
    json!({
        "oauth": {"client_id_metadata": is_on},
        "webhooks": {"allowed_targets": ["127.0.0.0/8"], "ca_file": ca_file},
    })
}

/// The `client_id`.
fn id(receiver: &Receiver) -> String {
    format!("https://127.0.0.1:{}/client.json", receiver.address.port())
}

fn description(receiver: &Receiver) -> Value {
    json!({
        "client_id": id(receiver),
        "client_name": "App <b>",
        "redirect_uris": [CALLBACK, "http://127.0.0.1/cb", "app:/cb"],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code"],
    })
}

fn document(description: &Value) -> Reply {
    let kind = "content-type: application/json; charset=utf-8\r\n";
    Reply::Status(200, kind, description.to_string())
}

async fn a_client_is_described_by_the_document_at_its_address(control: TestControl) {
    let (control, receiver) = world(control).await;
    let id = id(&receiver);
    let host = format!("127.0.0.1:{}", receiver.address.port());
    let metadata = "/.well-known/oauth-authorization-server";
    let metadata = control.browser().open(metadata).await.json();
    assert_eq!(metadata["client_id_metadata_document_supported"], true);

    // A stranger makes the platform send no request.
    let asked = authorize(&[("client_id", id.as_str())]);
    let answer = control.browser().open(&asked).await;
    let login = answer.location.unwrap();
    assert!(
        login.starts_with("/login?next=/oauth/authorize?"),
        "{login}"
    );
    assert!(receiver.received().is_empty());

    let mut browser = control.signed_in("Ada").await;
    let page = browser.open(&asked).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(
        page.text.contains("Allow App &#60;b&#62; to access"),
        "{}",
        page.text
    );
    let described = format!("It is described by\n<b>{host}</b>, and the name is its own");
    assert!(page.text.contains(&described), "{}", page.text);
    assert!(page.text.contains("<b>client.example</b>"), "{}", page.text);
    assert!(
        !page.text.contains("Any program on this machine"),
        "{}",
        page.text
    );
    press(&mut browser, &page, "deny").await;
    let code = code(&mut browser, &[("client_id", &id)]).await;
    for (other, status) in [("web", 400), (&format!("{id}x"), 400), (&id, 200)] {
        let answer = redeem(&control, &code, &[("client_id", other)]).await;
        assert_eq!(answer.status, status, "{other}: {}", answer.text);
        if status == 200 {
            let token = answer.json()["access_token"].as_str().unwrap().to_owned();
            let claims = &::credentials::inspect(&token).unwrap()["claims"];
            assert_eq!(claims["client_id"], id);
            let identity = with_token(&control, "/api/whoami", &token).await;
            assert_eq!(identity.status, 200, "{}", identity.text);
            let fields = [("client_id", id.as_str()), ("token", token.as_str())];
            let answer = program(&control, "/oauth/revoke", &fields).await;
            assert_eq!(answer.status, 200);
            let identity = with_token(&control, "/api/whoami", &token).await;
            assert_eq!(identity.status, 401);
        }
    }
    // Its name in the account is the host: anyone may write any name into a document.
    let mails = control.mails().await.concat();
    assert!(
        mails.contains(&host) && !mails.contains("App <b>"),
        "{mails}"
    );

    // One fetch, without the user's cookie, served all of this.
    let received = receiver.received();
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!(received[0].line, "GET /client.json HTTP/1.1");
    assert_eq!(received[0].header("accept"), Some("application/json"));
    assert_eq!(
        (received[0].header("cookie"), received[0].header("referer")),
        (None, None)
    );
    // A changed document takes effect after ten minutes.
    let mut moved = description(&receiver);
    moved["redirect_uris"] = json!(["https://elsewhere.example/cb"]);
    receiver.always(document(&moved));
    assert_eq!(browser.open(&asked).await.status, 200);
    control.clock.advance(600);
    assert_eq!(browser.open(&asked).await.status, 400);
    assert_eq!(receiver.received().len(), 2);
}

async fn a_token_of_such_a_client_is_valid_while_the_configuration_accepts_them(
    control: TestControl,
) {
    let (control, receiver) = world(control).await;
    let id = id(&receiver);
    let mut browser = control.signed_in("Ada").await;
    let code = code(&mut browser, &[("client_id", &id)]).await;
    let answer = redeem(&control, &code, &[("client_id", &id)]).await;
    let token = answer.expect(200)["access_token"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        with_token(&control, "/api/whoami", &token).await.status,
        200
    );
    let off = sections(&control.directory().join("client.pem"), false);
    let control = control.configured(off).await;
    assert_eq!(
        with_token(&control, "/api/whoami", &token).await.status,
        401
    );
    let answer = redeem(&control, &code, &[("client_id", &id)]).await;
    assert_eq!(error(&answer), "invalid_client");
    let mut browser = control.signed_in("Ada").await;
    let answer = browser.open(&authorize(&[("client_id", &id)])).await;
    assert_refused(&answer, "its client is not registered here");
}

/// RFC 8252 section 7.3: an application has no port yet when it writes the document.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_client_with_a_document_uses_any_loopback_port() {
    let (control, receiver) = world(TestControl::start("").await).await;
    let id = id(&receiver);
    let mut browser = control.signed_in("Ada").await;
    let asked = |callback: &str| authorize(&[("client_id", &id), ("redirect_uri", callback)]);
    let callback = "http://127.0.0.1:49152/cb";
    let page = browser.open(&asked(callback)).await;
    assert!(
        page.text
            .contains("<b>127.0.0.1:49152</b>, on this machine"),
        "{}",
        page.text
    );
    assert!(
        page.text
            .contains("Any program on this machine can claim to be it")
    );
    let answer = press(&mut browser, &page, "approve").await;
    let location = answer.location.unwrap();
    assert!(
        location.starts_with("http://127.0.0.1:49152/cb?code="),
        "{location}"
    );
    for other in [
        "http://127.0.0.1:49152/other",
        "http://localhost:49152/cb",
        "app:/cb",
    ] {
        let answer = browser.open(&asked(other)).await;
        assert_refused(&answer, "its callback is not registered for this client");
    }
    // Such a client has the authorization code grant only.
    let fields = [("client_id", id.as_str()), ("scope", super::SCOPE)];
    let answer = program(&control, "/oauth/device_authorization", &fields).await;
    assert_eq!(error(&answer), "unauthorized_client");
}

#[track_caller]
fn assert_refused(answer: &Answer, why: &str) {
    assert_eq!(
        (answer.status, &answer.location),
        (400, &None),
        "{}",
        answer.text
    );
    assert!(answer.text.contains(why), "{why}: {}", answer.text);
}

/// A page with the reason, and no redirect. A failure is not cached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_document_ends_with_a_page() {
    let (control, receiver) = world(TestControl::start("").await).await;
    let asked = authorize(&[("client_id", &id(&receiver))]);
    let mut browser = control.signed_in("Ada").await;
    let good = description(&receiver);
    let text = good.to_string();
    let json = "content-type: application/json\r\n";
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        document(&changed)
    };
    let to_itself = "location: /client.json\r\ncontent-type: application/json\r\n";
    let large = format!("{text}{}", " ".repeat(16 * 1024));
    for (reply, why) in [
        (Reply::status(404), "answers with status 404"),
        (
            Reply::Status(302, to_itself, text.clone()),
            "answers with status 302",
        ),
        (
            Reply::Status(203, json, text.clone()),
            "answers with status 203",
        ),
        (Reply::Status(200, "", text.clone()), "is not JSON"),
        (
            Reply::Status(200, "content-type: text/html\r\n", text.clone()),
            "is not JSON",
        ),
        (Reply::Status(200, json, large), "has more than 16384 bytes"),
        (
            Reply::Status(200, json, "[]".to_owned()),
            "is not a JSON object with",
        ),
        (Reply::Hangup, "does not answer"),
        (
            with("client_id", json!("https://other.example/")),
            "is not its address",
        ),
        (with("client_secret", json!("x")), "only public clients"),
        (
            with("token_endpoint_auth_method", json!("private_key_jwt")),
            "only public clients",
        ),
        (
            with("grant_types", json!(["implicit"])),
            "authorization code grant",
        ),
        (
            with("redirect_uris", json!(["http://client.example/"])),
            "has no callback",
        ),
    ] {
        receiver.reply([reply]);
        assert_refused(&browser.open(&asked).await, why);
    }
    let page = browser.open(&asked).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(receiver.received().len(), 14, "redirects are not followed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_causes_a_limited_number_of_fetches() {
    let (control, receiver) = world(TestControl::start("").await).await;
    control.person("Grace").await;
    receiver.always(Reply::status(404));
    let asked = authorize(&[("client_id", &id(&receiver))]);
    let mut browser = control.signed_in("Ada").await;
    for _ in 0..21 {
        assert_eq!(browser.open(&asked).await.status, 400);
    }
    let answer = browser.open(&asked).await;
    assert_eq!(
        (answer.status, &answer.headers["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert_eq!(receiver.received().len(), 21);
    // Other users, and documents that are cached, do not wait.
    receiver.always(document(&description(&receiver)));
    let mut other = control.signed_in("Grace").await;
    assert_eq!(other.open(&asked).await.status, 200);
    assert_eq!(browser.open(&asked).await.status, 200);
    assert_eq!(receiver.received().len(), 22);
}

/// The guards of webhooks, also for names that resolve to internal addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_fetched_from_permitted_addresses_only() {
    let control = TestControl::start("").await;
    let ca_file = control.directory().join("client.pem");
    let receiver = Receiver::start(&ca_file).await;
    let mut guarded = sections(&ca_file, true);
    guarded["webhooks"]["allowed_targets"] = json!([]);
    let control = control.configured(guarded).await;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let port = receiver.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::ffff:7f00:1]",
        "10.0.0.1",
        "169.254.169.254",
    ] {
        let id = format!("https://{host}:{port}/client.json");
        let answer = browser.open(&authorize(&[("client_id", &id)])).await;
        assert_refused(&answer, "is not at a public address");
    }
    assert!(receiver.received().is_empty());
    for id in [
        format!("http://127.0.0.1:{port}/client.json"),
        "https://a.example/?x=1".to_owned(),
    ] {
        let answer = browser.open(&authorize(&[("client_id", &id)])).await;
        assert_refused(&answer, "its client is not registered here");
    }
    // By default there are no such clients.
    let control = control.configured(json!({})).await;
    let metadata = "/.well-known/oauth-authorization-server";
    let answer = control
        .browser()
        .send(Method::GET, metadata, None, &[])
        .await;
    assert!(
        answer
            .json()
            .get("client_id_metadata_document_supported")
            .is_none()
    );
}
