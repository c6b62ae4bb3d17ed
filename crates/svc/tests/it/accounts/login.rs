//! `svc login` with approval in a browser (OA-4, RFC 8628), and `svc logout` (OA-5).

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use axum::{Json, Router, routing};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::hosted::encoded;
use crate::installed::{RunningUp, up};
use crate::program::Home;
use crate::terminal::TerminalCommand;

/// A user in a browser, signed in.
struct Person {
    client: reqwest::Client,
    base_url: String,
    cookie: String,
}

impl Person {
    async fn sign_in(up: &RunningUp) -> Self {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let person = Self {
            client,
            base_url: up.ready_field("base_url").to_owned(),
            cookie: String::new(),
        };
        let (email, password) = (
            up.ready_field("admin_email"),
            up.ready_field("admin_password"),
        );
        let answer = person
            .submit("/login", &[("email", email), ("password", password)])
            .await;
        assert_eq!(answer.status(), 303, "{answer:?}");
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        Self {
            cookie: cookie.split(';').next().unwrap().to_owned(),
            ..person
        }
    }

    async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::Response {
        let body: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        self.client
            .post(format!("{}{path}", self.base_url))
            .header("origin", &self.base_url)
            .header("cookie", &self.cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body.join("&"))
            .send()
            .await
            .unwrap()
    }

    /// Enters the code and presses a button of the approval page. Returns the page.
    async fn decide(&self, user_code: &str, decision: &str) -> String {
        let screen = self.submit("/device", &[("user_code", user_code)]).await;
        let screen = screen.text().await.unwrap();
        let hidden = |name: &str| {
            let begin = format!("name=\"{name}\" value=\"");
            let rest = screen.split(&begin).nth(1).unwrap_or_else(|| {
                panic!("no {name}: {screen}");
            });
            rest.split('"').next().unwrap().to_owned()
        };
        let (code, session) = (hidden("user_code"), hidden("session"));
        let fields = [
            ("user_code", code.as_str()),
            ("session", &session),
            ("decision", decision),
        ];
        let done = self.submit("/device/approve", &fields).await;
        assert_eq!(done.status(), 200);
        screen
    }
}

fn file(home: &Home) -> PathBuf {
    home.path().join(".config/svc/contexts/default.json")
}

fn kept(home: &Home) -> Value {
    serde_json::from_slice(&std::fs::read(file(home)).unwrap()).unwrap()
}

/// OA-4, OA-5: from the code to a stored token, and to its revocation. The user sees the details of
/// the requester.
#[tokio::test]
async fn oa_4_a_login_is_approved_in_a_browser_and_ended_by_logout() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let person = Person::sign_in(&up).await;
    let args = [
        "login",
        "--api-url",
        up.ready_field("base_url"),
        "-o",
        "json",
    ];
    let mut login = home.start(&args);
    let shown = login.json().await;
    let user_code = shown["user_code"].as_str().unwrap();
    let device = format!("{}/device", up.ready_field("base_url"));
    assert_eq!(
        shown,
        json!({
            "verification_uri": device,
            "verification_uri_complete": format!("{device}?user_code={user_code}"),
            "user_code": user_code,
            "expires_in": 600,
        })
    );
    let screen = person.decide(user_code, "approve").await;
    for seen in [
        std::env::consts::OS,
        env!("CARGO_PKG_VERSION"),
        "Create or select a project, open a tunnel",
        "account.workspaces.read-only",
    ] {
        assert!(screen.contains(seen), "{seen}: {screen}");
    }
    assert!(!screen.contains("Give access to others"), "{screen}");
    let identity = login.json().await;
    assert_eq!(identity["email"], up.ready_field("admin_email"));
    assert!(!identity["permissions"].to_string().contains("credentials"));
    let output = login.ended().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.stderr.contains("waiting for approval\n"),
        "{output:?}"
    );
    assert!(!output.stderr.contains("eyJ"), "{output:?}");
    let mode = std::fs::metadata(file(&home)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let context = kept(&home);
    assert_eq!(context["workspace_id"], up.ready_field("workspace_id"));
    let here = ["project", "list", "--context", "default", "-o", "json"];
    let projects = home.run(&here).await.json();
    assert_eq!(projects["projects"][0]["id"], up.ready_field("project_id"));

    let base_url = up.ready_field("base_url");
    let token = context["token"].as_str().unwrap();
    let whoami = ["whoami", "--api-url", base_url, "--token", token];
    assert_eq!(home.run(&whoami).await.code, Some(0));
    let logout = home.run(&["logout"]).await;
    assert_eq!(logout.code, Some(0), "{logout:?}");
    assert!(logout.stderr.contains("is revoked"), "{logout:?}");
    assert!(!file(&home).exists());
    assert_eq!(
        home.run(&whoami).await.code,
        Some(3),
        "the token is revoked"
    );
}

#[tokio::test]
async fn a_login_at_a_desktop_opens_the_browser() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let person = Person::sign_in(&up).await;
    let opened = home.path().join("opened");
    let browser = home.path().join("xdg-open");
    // Renamed into place, so that no reader sees a partial file.
    let script = format!(
        "#!/bin/sh\necho \"$1\" > '{0}.part'\n/bin/mv '{0}.part' '{0}'\n",
        opened.display()
    );
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let scope = "account.projects.read-only";
    let args = [
        "login",
        "--api-url",
        up.ready_field("base_url"),
        "--scope",
        scope,
    ];
    let mut command = home.command(&args);
    command.env("PATH", home.path()).env("DISPLAY", ":0");
    let mut asked = TerminalCommand::spawn(&mut command);
    asked.until("waiting for approval").await;
    let address = until_written(&opened).await;
    let (device, user_code) = address.trim().split_once("?user_code=").unwrap();
    assert_eq!(device, format!("{}/device", up.ready_field("base_url")));
    person.decide(user_code, "approve").await;
    asked.until("signed in to").await;
    asked.ended().await;
    let identity = ["whoami", "--context", "default", "-o", "json"];
    let identity = home.run(&identity).await.json();
    assert_eq!(identity["permissions"], json!([scope]));
}

async fn until_written(path: &Path) -> String {
    let written = async {
        loop {
            if let Ok(text) = std::fs::read_to_string(path) {
                return text;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::program::SOON, written)
        .await
        .unwrap()
}

#[tokio::test]
async fn oa_4_a_denied_or_stopped_login_stores_nothing() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let person = Person::sign_in(&up).await;
    let args = [
        "login",
        "--api-url",
        up.ready_field("base_url"),
        "-o",
        "json",
    ];
    let mut denied = home.start(&args);
    let mut stopped = home.start(&args);
    let shown = denied.json().await;
    person
        .decide(shown["user_code"].as_str().unwrap(), "deny")
        .await;
    stopped.json().await;
    stopped.wait_for_stderr("waiting for approval").await;
    stopped.signal(Signal::SIGINT);
    let stopped = stopped.ended().await;
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    let denied = denied.ended().await;
    assert_eq!(denied.code, Some(3), "{denied:?}");
    assert!(denied.stderr.contains("was denied"), "{denied:?}");
    assert!(!file(&home).exists());
}

/// A platform where no login is approved and codes expire soon.
async fn platform(expires_in: u32, issuer: Option<&str>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let url = |path: &str| format!("{origin}{path}");
    let metadata = json!({
        "issuer": issuer.unwrap_or(&origin),
        "authorization_endpoint": url("/a"),
        "token_endpoint": url("/token"),
        "device_authorization_endpoint": url("/ask"),
        "revocation_endpoint": url("/revoke"),
        "jwks_uri": url("/keys"),
        "scopes_supported": [],
        "response_types_supported": [],
        "response_modes_supported": [],
        "grant_types_supported": [],
        "token_endpoint_auth_methods_supported": [],
        "revocation_endpoint_auth_methods_supported": [],
        "code_challenge_methods_supported": [],
        "authorization_response_iss_parameter_supported": true,
        "protected_resources": [],
    });
    let given = json!({
        "device_code": "d",
        "user_code": "ABCD-EFGH",
        "verification_uri": url("/device"),
        "verification_uri_complete": url("/device?user_code=ABCD-EFGH"),
        "expires_in": expires_in,
        "interval": 1,
    });
    let refusal = json!({"error": "expired_token", "error_description": "too late"});
    let refusal = (http::StatusCode::BAD_REQUEST, Json(refusal));
    let routes = Router::new()
        .route(
            "/.well-known/oauth-authorization-server",
            routing::get(|| async { Json(metadata) }),
        )
        .route("/ask", routing::post(|| async { Json(given) }))
        .route("/token", routing::post(|| async { refusal }));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    origin
}

/// RFC 8628 section 3.5: both on the platform's error and by the local clock.
#[tokio::test]
async fn oa_4_a_login_fails_when_its_code_expires() {
    let home = Home::new();
    for expires_in in [600, 1] {
        let origin = platform(expires_in, None).await;
        let output = home.run(&["login", "--api-url", &origin]).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("ABCD-EFGH"), "{output:?}");
        assert!(output.stderr.contains("was not approved"), "{output:?}");
    }
    assert!(!file(&home).exists());
}

/// RFC 8414 section 3.3: metadata with another issuer is not trusted.
#[tokio::test]
async fn a_platform_with_another_issuer_gets_no_login() {
    let home = Home::new();
    let origin = platform(600, Some("https://svc.example.com")).await;
    let output = home.run(&["login", "--api-url", &origin]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output
            .stderr
            .contains("calls itself https://svc.example.com"),
        "{output:?}"
    );
}

#[tokio::test]
async fn impossible_options_of_a_login_are_reported() {
    let home = Home::new();
    let login = ["login", "--api-url", "http://127.0.0.1:9"];
    let unknown = home
        .run(&[&login[..], &["--scope", "account.everything"]].concat())
        .await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let away = home.run(&login).await;
    assert_eq!(away.code, Some(1), "{away:?}");
    assert!(away.stderr.contains("cannot reach"), "{away:?}");
}

/// A token that was not issued to the command line is not revoked. An unreachable platform does not
/// prevent a local logout.
#[tokio::test]
async fn a_logout_reports_the_state_of_the_token() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let token = up.ready_field("token").to_owned();
    let login = [
        "login",
        "--api-url",
        up.ready_field("base_url"),
        "--token-stdin",
    ];
    let signed_in = home.run_with_input(&login, token.as_bytes()).await;
    assert_eq!(signed_in.code, Some(0), "{signed_in:?}");
    let logout = home.run(&["logout"]).await;
    assert!(logout.stderr.contains("was issued elsewhere"), "{logout:?}");
    assert!(!file(&home).exists());
    let again = home.run(&["logout"]).await;
    assert!(again.stderr.contains("does not exist"), "{again:?}");

    let signed_in = home.run_with_input(&login, token.as_bytes()).await;
    assert_eq!(signed_in.code, Some(0), "{signed_in:?}");
    up.stop().await;
    let logout = home.run(&["logout"]).await;
    assert_eq!(logout.code, Some(0), "{logout:?}");
    for said in ["cannot reach", "was not revoked"] {
        assert!(logout.stderr.contains(said), "{logout:?}");
    }
    assert!(!file(&home).exists());
}

#[tokio::test]
async fn a_logout_removes_the_context_of_a_login_and_its_selection() {
    let home = Home::new();
    let contexts = home.path().join(".config/svc/contexts");
    let selected = home.path().join(".config/svc/selected");
    for logout in [&["logout"][..], &["logout", "--context", "work"]] {
        for (name, rest) in [("default", &[][..]), ("work", &["--use"])] {
            let set = ["context", "set", name, "--engine", "e.example:1"];
            let made = home.run(&[&set[..], rest].concat()).await;
            assert_eq!(made.code, Some(0), "{made:?}");
        }
        let output = home.run(logout).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stderr.contains("`work` is deleted"), "{output:?}");
        assert!(!contexts.join("work.json").exists(), "{logout:?}");
        assert!(contexts.join("default.json").exists(), "{logout:?}");
        assert!(!selected.exists(), "{logout:?}");
    }
    // The selection of another context stays.
    let set = ["context", "set", "work", "--engine", "e.example:1", "--use"];
    assert_eq!(home.run(&set).await.code, Some(0));
    let other = home.run(&["logout", "--context", "default"]).await;
    assert_eq!(other.code, Some(0), "{other:?}");
    assert!(selected.exists());
    let nothing = home.run(&["logout", "--context", "default"]).await;
    assert!(
        nothing.stderr.contains("context `default` does not exist"),
        "{nothing:?}"
    );
}

/// A later login need not name the platform's certificate authority again, and another platform is
/// not trusted with it.
#[tokio::test]
async fn a_later_login_keeps_the_authority_of_its_platform() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let local = home.path().join(".config/svc/contexts/local.json");
    let local: Value = serde_json::from_slice(&std::fs::read(local).unwrap()).unwrap();
    let ca = home.path().join("ca.pem");
    std::fs::copy(local["ca_file"].as_str().unwrap(), &ca).unwrap();
    let login = ["login", "--api-url", up.ready_field("base_url")];
    let token = ["--token", up.ready_field("token")];
    let first = [&login[..], &token, &["--ca-file", "ca.pem"]].concat();
    for args in [&first[..], &[&login[..], &token].concat()] {
        let output = home.run(args).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(kept(&home)["ca_file"], ca.to_str().unwrap());
    }
    // It is also used for the approval.
    std::fs::remove_file(&ca).unwrap();
    let output = home.run(&login).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.stderr.contains("cannot read the CA file"),
        "{output:?}"
    );
    let elsewhere = platform(1, None).await;
    let output = home.run(&["login", "--api-url", &elsewhere]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("was not approved"), "{output:?}");
}
