//! The npm package `oidc-provider`, with its own pages, against a listening platform.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use control::RunningPlatform;
use control::app::App;
use control::config::Config;
use daemon::clock::SystemClock;
use daemon::shutdown::Shutdown;
use reqwest::{Client, Method, Response, Url, redirect};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use types::id::UserId;

use crate::support::PASSWORD;

/// Stops when dropped.
pub(super) struct RealProvider {
    pub(super) issuer: String,
    _child: Child,
}

impl RealProvider {
    /// Starts one for the platform at this address, with the options of the script.
    pub(super) async fn start(platform: &str, options: &Value) -> Self {
        let variable =
            |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/accounts/openid/provider.mjs"
        );
        let mut child = Command::new(variable("SVC_TEST_NODE"))
            .args([script, &variable("SVC_TEST_NODE_PACKAGES"), platform])
            .arg(options.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let issuer = lines.next_line().await.unwrap().expect("an issuer");
        // Reads its further output, so that the pipe does not fill.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self {
            issuer,
            _child: child,
        }
    }
}

/// A browser over real sockets, with cookies per origin and step-by-step redirects.
pub(super) struct RealBrowser {
    http: Client,
    pub(super) cookies: BTreeMap<(String, String), String>,
}

impl RealBrowser {
    pub(super) fn new() -> Self {
        let http = Client::builder().redirect(redirect::Policy::none()).build();
        Self {
            http: http.unwrap(),
            cookies: BTreeMap::new(),
        }
    }

    /// Opens the address and follows redirects to a page. Returns its address and text.
    pub(super) async fn follow(&mut self, url: &str) -> (Url, String) {
        self.go(Method::GET, url.parse().unwrap(), None).await
    }

    /// Submits the first form of a page, with these fields and the hidden ones.
    pub(super) async fn submit(
        &mut self,
        page: (Url, String),
        fields: &[(&str, &str)],
    ) -> (Url, String) {
        let (url, text) = page;
        let action = between(&text, "action=\"", "\"");
        let mut form: Vec<(String, String)> = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        for input in text.split("<input").skip(1) {
            let input = &input[..input.find('>').unwrap()];
            if input.contains("type=\"hidden\"") {
                form.push((
                    between(input, "name=\"", "\"").to_owned(),
                    between(input, "value=\"", "\"").to_owned(),
                ));
            }
        }
        let target = url.join(action).unwrap();
        self.go(Method::POST, target, Some(form)).await
    }

    pub(super) async fn go(
        &mut self,
        mut method: Method,
        mut url: Url,
        mut form: Option<Vec<(String, String)>>,
    ) -> (Url, String) {
        for _ in 0..20 {
            let response = self.send(method, url.clone(), form.take()).await;
            let Some(location) = response.headers().get("location") else {
                return (url, response.text().await.unwrap());
            };
            url = url.join(location.to_str().unwrap()).unwrap();
            method = Method::GET;
        }
        panic!("too many redirects, the last to {url}");
    }

    async fn send(
        &mut self,
        method: Method,
        url: Url,
        form: Option<Vec<(String, String)>>,
    ) -> Response {
        let origin = url.origin().ascii_serialization();
        let of_origin = self.cookies.iter().filter(|((at, _), _)| *at == origin);
        let cookies: Vec<_> = of_origin
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        let mut request = self.http.request(method, url);
        request = request.header("cookie", cookies.join("; "));
        if let Some(form) = form {
            request = request.header("origin", &origin).form(&form);
        }
        let response = request.send().await.unwrap();
        for set in response.headers().get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            let key = (origin.clone(), name.to_owned());
            if value.is_empty() {
                self.cookies.remove(&key);
            } else {
                self.cookies.insert(key, value.to_owned());
            }
        }
        response
    }
}

/// A listening platform whose users sign in at a real provider.
pub(super) struct RealPlatform {
    pub(super) base: String,
    pub(super) provider: RealProvider,
    pub(super) app: Arc<App>,
    /// The user with the address `ada@example.com`.
    pub(super) ada: UserId,
    shutdown: Shutdown,
    running: RunningPlatform,
    _directory: TempDir,
}

impl RealPlatform {
    /// Starts one, with the options of the provider's script and further keys of the section
    /// `openid`.
    pub(super) async fn start(options: &Value, more: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let provider = RealProvider::start(&base, options).await;
        let directory = tempfile::tempdir().unwrap();
        let (file, secret) = (
            directory.path().join("platform.yaml"),
            directory.path().join("secret"),
        );
        std::fs::write(&secret, "a:secret/of+tests\n").unwrap();
        let mut openid = json!({
            "issuer": provider.issuer, "client_id": "svc", "client_secret_file": secret,
            "name": "Example ID",
        });
        for (key, value) in more.as_object().unwrap() {
            openid[key] = value.clone();
        }
        let config = json!({
            "platform": {"base_url": base, "data_dir": directory.path().join("data")},
            "openid": openid,
        });
        std::fs::write(&file, config.to_string()).unwrap();
        let config = Config::load(Some(&file), []).unwrap();
        let app = control::open(config, Arc::new(SystemClock)).await.unwrap();
        let made = control::people::accounts::create_admin(
            &app.store,
            &app.people.passwords,
            "ada@example.com",
            "Ada",
            PASSWORD,
            app.now(),
        );
        let (ada, _) = made.await.unwrap();
        let shutdown = Shutdown::new(Duration::from_secs(5));
        let running = control::start_on(Arc::clone(&app), listener, shutdown.clone())
            .await
            .unwrap();
        Self {
            base,
            provider,
            app,
            ada,
            shutdown,
            running,
            _directory: directory,
        }
    }

    pub(super) async fn stop(self) {
        self.shutdown.request();
        self.running.wait_until_stopped().await;
    }
}

/// Signs in at the provider, on its own pages.
pub(super) async fn sign_in(
    browser: &mut RealBrowser,
    platform: &RealPlatform,
    name: &str,
) -> (Url, String) {
    let start = format!("{}/login/openid?next=/api/user", platform.base);
    let page = browser.follow(&start).await;
    let issuer = &platform.provider.issuer;
    assert!(page.0.as_str().starts_with(issuer), "{}", page.0);
    let fields = [("login", name), ("password", "any")];
    let consent = browser.submit(page, &fields).await;
    browser.submit(consent, &[]).await
}

pub(super) fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let start = text
        .find(before)
        .unwrap_or_else(|| panic!("{before} in {text}"))
        + before.len();
    let rest = &text[start..];
    &rest[..rest.find(after).unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_sign_in_through_a_real_provider() {
    let options = json!({
        "claims": {
            "openid": ["sub"], "email": ["email", "email_verified"], "profile": ["name"],
        },
        "user": {"email": "$id", "email_verified": true, "name": "Somebody"},
    });
    let platform = RealPlatform::start(&options, &json!({})).await;
    let (base, provider, ada) = (platform.base.clone(), &platform.provider, platform.ada);

    let mut browser = RealBrowser::new();
    let (_, login) = browser.follow(&format!("{base}/login")).await;
    assert!(login.contains("Continue with Example ID"), "{login}");
    let start = format!("{base}/login/openid?next=/api/user");
    let sign_in = browser.follow(&start).await;
    assert!(
        sign_in.0.as_str().starts_with(&provider.issuer),
        "{}",
        sign_in.0
    );
    let fields = [("login", "ada@example.com"), ("password", "any")];
    let consent = browser.submit(sign_in, &fields).await;
    let (url, user) = browser.submit(consent, &[]).await;
    assert_eq!(url.as_str(), format!("{base}/api/user"), "{user}");
    let user: Value = serde_json::from_str(&user).unwrap();
    assert_eq!(user["id"], ada.as_str());

    // The user has a session there by now. A second sign-in needs no input, and a fresh one does.
    let signed_out: Vec<_> = browser.cookies.keys().cloned().collect();
    for key in signed_out.into_iter().filter(|(origin, _)| *origin == base) {
        browser.cookies.remove(&key);
    }
    let (url, _) = browser.follow(&start).await;
    assert_eq!(url.as_str(), format!("{base}/api/user"));
    let again = browser.follow(&format!("{start}&anew=yes")).await;
    assert!(
        again.0.as_str().starts_with(&provider.issuer),
        "{}",
        again.0
    );
    let after = browser.submit(again, &fields).await;
    let (url, text) = if after.0.as_str().starts_with(&provider.issuer) {
        browser.submit(after, &[]).await
    } else {
        after
    };
    assert_eq!(url.as_str(), format!("{base}/api/user"), "{text}");

    // A user without an account.
    let mut stranger = RealBrowser::new();
    let sign_in = stranger.follow(&start).await;
    let fields = [("login", "eve@example.com"), ("password", "any")];
    let consent = stranger.submit(sign_in, &fields).await;
    let (_, page) = stranger.submit(consent, &[]).await;
    assert!(page.contains("You have no account here"), "{page}");

    platform.stop().await;
}
