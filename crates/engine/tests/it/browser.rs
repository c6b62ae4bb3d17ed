//! Browsers at a tunnel: sessions (ED-2) and challenges (ED-6), over real connections and in front
//! of a service that counts requests.

mod challenge;
mod chromium;
mod combined;
mod session;

use std::sync::Arc;

use client::{Properties, Target};
use engine::clock::{Clock, SystemClock};
use serde_json::Value;
use testing::{Answer, FakePlatform, TestEngine, TestTunnel, Upstream};

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
    pub(crate) async fn send(&self, method: &str, target: &str, fields: &str) -> Answer {
        let host = self.host();
        let mut visitor = self.engine.visitor().http1(host).await;
        visitor.request(method, target, host, fields).await;
        visitor.answer().await
    }

    pub(crate) async fn get(&self, target: &str, fields: &str) -> Answer {
        self.send("GET", target, fields).await
    }

    /// Opens a page as a browser does, with these cookies.
    pub(crate) async fn open(&self, target: &str, jar: &Jar) -> Answer {
        self.get(target, &format!("{PAGE}{}", jar.field())).await
    }
}

pub(crate) fn with_sessions() -> Properties {
    Properties::http().svc_auth(true)
}

/// A browser's cookies for one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jar(Vec<(String, String)>);

impl Jar {
    /// Stores the cookies that an answer sets.
    pub(crate) fn take(&mut self, answer: &Answer) {
        for (_, value) in answer
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
        {
            let (pair, attributes) = value.split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(
                    attributes.split("; ").any(|it| it.trim() == attribute),
                    "{attributes}"
                );
            }
            assert!(name.starts_with("__Host-"), "{name}");
            self.0.retain(|(known, _)| known != name);
            if !attributes.contains("Max-Age=0") {
                self.0.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    pub(crate) fn field(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let pairs: Vec<_> = self
            .0
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!("Cookie: {}\r\n", pairs.join("; "))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
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
