//! A browser without a screen: cookies, forms and redirects, through the real router.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use control::app::{App, router};
use control::config::Config;
use daemon::clock::ManualClock;
use http::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use store::users::Role;
use tempfile::TempDir;
use tower::ServiceExt as _;
use types::id::{UserId, WorkspaceId};

pub(crate) const BASE: &str = "https://svc.example.com";
/// A callback of the client `web`.
pub(crate) const CALLBACK: &str = "https://client.example/callback?x=1";
/// Another one, on the machine of the person.
pub(crate) const LOOPBACK: &str = "http://127.0.0.1:49152/callback";
pub(crate) const PASSWORD: &str = "correct horse battery";

/// Runs tests on both databases: functions of the same file that take a [`Platform`].
macro_rules! both {
    ($($test:ident)+) => {$(
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                let platform = crate::browser::Platform::start(None).await;
                Box::pin(super::$test(platform)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                let database = crate::postgres::new_database().await;
                let platform = crate::browser::Platform::start(Some(database)).await;
                Box::pin(super::$test(platform)).await;
            }
        }
    )+};
}
pub(crate) use both;

/// A platform that nobody reaches but the test.
pub(crate) struct Platform {
    pub(crate) app: Arc<App>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) directory: TempDir,
    pub(crate) router: Router,
}

impl Platform {
    /// On the database at `url`, or on an embedded one.
    pub(crate) async fn start(url: Option<String>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("platform.yaml");
        let config = json!({"platform": {
            "base_url": BASE,
            "data_dir": directory.path().join("data"),
            "database_url": url,
        }, "engines": [{"cluster_domain": "engine.example.com"}], "oauth": {"clients": [
            {"id": "web", "name": "Web Client", "redirect_uris": [CALLBACK, LOOPBACK]},
            {"id": "other", "redirect_uris": ["https://other.example/callback"]},
            {"id": "agent", "name": "Agent <b>"},
        ]}});
        std::fs::write(&file, config.to_string()).unwrap();
        std::fs::create_dir_all(directory.path().join("data")).unwrap();
        let config = Config::load(Some(&file), []).unwrap();
        let clock = Arc::new(ManualClock::at("2026-04-16T12:00:00Z".parse().unwrap()));
        let app = control::open(config, Arc::clone(&clock) as _)
            .await
            .unwrap();
        Self {
            router: router(Arc::clone(&app)),
            app,
            clock,
            directory,
        }
    }

    /// Somebody with an account, the password [`PASSWORD`], and a workspace.
    pub(crate) async fn person(&self, name: &str) -> (UserId, WorkspaceId) {
        let email = format!("{}@example.com", name.to_lowercase());
        let passwords = &self.app.people.passwords;
        let store = &self.app.store;
        let now = self.app.now();
        let made =
            control::people::accounts::create_admin(store, passwords, &email, name, PASSWORD, now)
                .await
                .unwrap();
        let mut tx = store.begin().await.unwrap();
        store::users::set_role(&mut tx, made.0, Role::User, now)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        made
    }

    pub(crate) fn browser(&self) -> Browser<'_> {
        Browser {
            platform: self,
            cookie: None,
            ip: [192, 0, 2, 1],
        }
    }

    /// A browser in which this person is signed in.
    pub(crate) async fn signed_in(&self, name: &str) -> Browser<'_> {
        let mut browser = self.browser();
        let answer = browser.sign_in(name, PASSWORD).await;
        assert_eq!(answer.location.as_deref(), Some("/account"));
        browser
    }

    /// The mails that were sent, oldest first.
    pub(crate) async fn mails(&self) -> Vec<String> {
        self.app.people.finish().await;
        let Ok(entries) = std::fs::read_dir(self.directory.path().join("data/mail")) else {
            return Vec::new();
        };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
            .iter()
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect()
    }
}

/// A browser.
#[derive(Clone)]
pub(crate) struct Browser<'a> {
    platform: &'a Platform,
    /// `name=value` of the session.
    pub(crate) cookie: Option<String>,
    pub(crate) ip: [u8; 4],
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) location: Option<String>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    /// What stands between two pieces of the page.
    pub(crate) fn between(&self, before: &str, after: &str) -> &str {
        let start = self.text.find(before).expect(before) + before.len();
        let rest = &self.text[start..];
        &rest[..rest.find(after).expect(after)]
    }
}

impl Browser<'_> {
    pub(crate) async fn open(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, None, &[]).await
    }

    /// Sends a form of ours.
    pub(crate) async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let origin = [("sec-fetch-site", "same-origin"), ("origin", BASE)];
        self.submit_from(path, fields, &origin).await
    }

    /// Sends a form, with these headers of the browser.
    pub(crate) async fn submit_from(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Answer {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        let kind = "application/x-www-form-urlencoded";
        self.send(Method::POST, path, Some((kind, pairs.join("&"))), headers)
            .await
    }

    pub(crate) async fn sign_in(&mut self, name: &str, password: &str) -> Answer {
        let email = format!("{}@example.com", name.to_lowercase());
        self.submit("/login", &[("email", &email), ("password", password)])
            .await
    }

    /// Calls the API with the session, as a page of ours would.
    pub(crate) async fn api(&mut self, method: Method, path: &str, body: Value) -> Answer {
        let body = (!body.is_null()).then(|| ("application/json", body.to_string()));
        self.send(method, path, body, &[("sec-fetch-site", "same-origin")])
            .await
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(cookie) = &self.cookie {
            request = request.header(COOKIE, cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some((kind, text)) => {
                request = request.header(CONTENT_TYPE, kind);
                Body::from(text)
            }
            None => Body::empty(),
        };
        let mut request = request.body(body).unwrap();
        let peer = SocketAddr::from((self.ip, 50_000));
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = self.platform.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        if let Some(set) = parts.headers.get(SET_COOKIE) {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            self.cookie = (!pair.ends_with('=')).then(|| pair.to_owned());
        }
        let location = parts
            .headers
            .get(LOCATION)
            .map(|path| path.to_str().unwrap().to_owned());
        Answer {
            status: parts.status,
            headers: parts.headers,
            location,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}
