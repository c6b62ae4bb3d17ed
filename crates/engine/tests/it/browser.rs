//! Browsers at a tunnel: sessions (ED-2) and challenges (ED-6), over real connections and in front
//! of a service that counts requests.

mod challenge;
mod chromium;
mod combined;
mod cors;
mod identity;
mod session;
mod tabs;

use std::sync::Arc;

use client::{Properties, Target};
use engine::clock::{Clock, SystemClock};
use serde_json::Value;
use testing::{FakePlatform, ReceivedResponse, TestEngine, TestTunnel, Upstream};

pub(crate) const A: &str = "aaaaaaaa";
const PAGE: &str = "Accept: text/html\r\n";

/// A managed engine with one project, of which `usr_ann` is a member and `usr_eve` is not, and a
/// published service.
pub(crate) struct Site {
    pub(crate) platform: FakePlatform,
    pub(crate) engine: TestEngine,
    pub(crate) service: Upstream,
    pub(crate) tunnel: TestTunnel,
    /// A token of `usr_ann`.
    pub(crate) token: String,
}

impl Site {
    pub(crate) async fn start(properties: Properties) -> Self {
        Self::start_with(properties, "").await
    }

    /// Starts with this clock.
    async fn start_at(properties: Properties, clock: Arc<dyn Clock>) -> Self {
        Self::launch(properties, "", clock).await
    }

    pub(crate) async fn start_with(properties: Properties, sections: &str) -> Self {
        Self::launch(properties, sections, Arc::new(SystemClock)).await
    }

    async fn launch(properties: Properties, sections: &str, clock: Arc<dyn Clock>) -> Self {
        let platform = FakePlatform::start().await;
        platform.add_project(A);
        platform.add_member("usr_ann", &[A]);
        platform.add_person("usr_eve", &[]);
        let (_, token) = platform.add_pat("usr_ann");
        // The publisher stays a member regardless of the visitors.
        platform.add_member("usr_host", &[A]);
        let (_, hosting) = platform.add_pat("usr_host");
        let engine = TestEngine::managed_at(&platform, None, sections, clock).await;
        let service = Upstream::http1().await;
        let agent = engine.agent_at(A, &hosting).await;
        let target: Target = service.addr().to_string().parse().unwrap();
        let tunnel = TestTunnel::open(agent, properties, target).await;
        Self {
            platform,
            engine,
            service,
            tunnel,
            token,
        }
    }

    pub(crate) fn host(&self) -> &str {
        self.tunnel.hostname()
    }

    /// Sends a request on its own connection. `fields` are lines including their line ends.
    pub(crate) async fn send(&self, method: &str, target: &str, fields: &str) -> ReceivedResponse {
        let host = self.host();
        let mut visitor = self.engine.visitor().http1(host).await;
        visitor.request(method, target, host, fields).await;
        visitor.answer().await
    }

    pub(crate) async fn get(&self, target: &str, fields: &str) -> ReceivedResponse {
        self.send("GET", target, fields).await
    }

    /// Opens a page as a browser does, with these cookies.
    pub(crate) async fn open(&self, target: &str, jar: &Jar) -> ReceivedResponse {
        self.get(target, &format!("{PAGE}{}", jar.field_for(target)))
            .await
    }
}

pub(crate) fn with_sessions() -> Properties {
    Properties::http().svc_auth(true)
}

/// A browser's cookies for one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jar(Vec<StoredCookie>);

#[derive(Clone, Debug)]
struct StoredCookie {
    name: String,
    value: String,
    path: String,
}

impl Jar {
    /// Stores the cookies that an answer sets.
    pub(crate) fn take(&mut self, answer: &ReceivedResponse) {
        for (_, value) in answer
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
        {
            let (pair, attributes) = value.split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            // RFC 6265 section 6.1.
            assert!(pair.len() <= 4096, "{name}");
            let attributes: Vec<_> = attributes.split(';').map(str::trim).collect();
            for attribute in ["Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(attributes.contains(&attribute), "{attributes:?}");
            }
            let path = attributes.iter().find_map(|it| it.strip_prefix("Path="));
            let path = path.unwrap().to_owned();
            let prefix = if path == "/" { "__Host-" } else { "__Secure-" };
            assert!(name.starts_with(prefix), "{name} {path}");
            self.0
                .retain(|known| known.name != name || known.path != path);
            if !attributes.contains(&"Max-Age=0") {
                self.0.push(StoredCookie {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    path,
                });
            }
        }
    }

    /// The field for a page of the host.
    pub(crate) fn field(&self) -> String {
        self.field_for("/")
    }

    /// The field for a path and query, with the cookies of this path (RFC 6265 section 5.1.4).
    pub(crate) fn field_for(&self, target: &str) -> String {
        let path = target.split('?').next().unwrap_or_default();
        let is_sent = |cookie: &&StoredCookie| cookie.path == "/" || cookie.path == path;
        let sent = self.0.iter().filter(is_sent);
        let pairs: Vec<_> = sent
            .map(|cookie| format!("{}={}", cookie.name, cookie.value))
            .collect();
        if pairs.is_empty() {
            return String::new();
        }
        format!("Cookie: {}\r\n", pairs.join("; "))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.name == name)
    }
}

/// The value of a parameter in an address.
fn parameter(address: &str, name: &str) -> String {
    let (_, query) = address.split_once('?').unwrap();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("{name} in {address}"))
        .1
        .to_owned()
}

/// The values of a field that the service received.
fn received_values<'a>(answer: &'a Value, name: &str) -> Vec<&'a str> {
    let fields = answer["headers"].as_array().unwrap().iter();
    fields
        .filter(|field| field[0] == name)
        .map(|field| field[1].as_str().unwrap())
        .collect()
}
