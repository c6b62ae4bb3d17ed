//! OAuth clients: registered in the configuration, and validated at startup.

use daemon::config::ConfigError;
use schemars::JsonSchema;
use serde::Deserialize;
use types::callback::Callback;
use types::tunnel::WebOrigin;

use super::document_url::DocumentUrl;

/// Section `oauth`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OauthSection {
    /// Clients that users may approve. `svc-cli` is built in.
    pub(super) clients: Vec<ClientSection>,
    /// True to accept clients that are not registered here. Their `client_id` is the `https` address
    /// of a document that describes them (OAuth Client ID Metadata Document). The platform fetches
    /// it when a signed-in user opens the client's link, from public addresses and those of
    /// `webhooks.allowed_targets`. Users approve such a client themselves, and see the host of the
    /// document.
    pub(super) client_id_metadata: bool,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClientSection {
    /// Its `client_id`: 1 to 64 letters, digits, dots, dashes and underscores. Required.
    #[schemars(example = &"claude")]
    pub(super) id: Option<String>,
    /// Name that users see; absent: the id.
    pub(super) name: Option<String>,
    /// Addresses to which browsers are sent with a code: `https`, or `http` on the user's own
    /// machine. Compared byte for byte. A client without one uses the device grant.
    #[schemars(example = ["https://client.example/callback"])]
    pub(super) redirect_uris: Vec<String>,
    /// For an application that listens on a port of the user's machine which it does not choose in
    /// advance: it may use any port with its registered callback on `http://127.0.0.1`,
    /// `http://[::1]` or `http://localhost`. The rest is still compared byte for byte (RFC 8252
    /// section 7.3).
    pub(super) loopback_any_port: bool,
    /// Origins of web pages that may call the MCP endpoints, such as `https://client.example`. Other
    /// pages are refused.
    #[schemars(example = ["https://client.example"])]
    pub(super) origins: Vec<String>,
}

/// A client that users may approve. All clients are public: none has a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    id: String,
    name: String,
    callbacks: Vec<Callback>,
    loopback_any_port: bool,
    origins: Vec<WebOrigin>,
    /// Host of the metadata document; `None` for a registered client.
    document_host: Option<String>,
}

impl Client {
    /// The client whose metadata document is at this address, without the contents of the document.
    /// It is named after its host. Everything else of a document is the client's own claim.
    pub(super) fn of_document(url: &DocumentUrl) -> Self {
        Self {
            id: url.as_str().to_owned(),
            name: url.host(),
            callbacks: Vec::new(),
            loopback_any_port: true,
            origins: Vec::new(),
            document_host: Some(url.host()),
        }
    }

    /// The same client with the contents of its document.
    pub(super) fn described(self, name: Option<String>, callbacks: Vec<Callback>) -> Self {
        Self {
            name: name.unwrap_or(self.name),
            callbacks,
            ..self
        }
    }

    /// Host of its metadata document, if it is not registered.
    pub(super) fn document_host(&self) -> Option<&str> {
        self.document_host.as_deref()
    }

    /// Its `client_id`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name for users.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The registered callback that equals this text, byte for byte (OA-2). Only the port of a
    /// callback on the user's machine may differ, if the client is registered with
    /// `loopback_any_port`.
    pub fn callback(&self, text: &str) -> Option<Callback> {
        let mut registered = self.callbacks.iter();
        if let Some(callback) = registered.find(|callback| callback.as_str() == text) {
            return Some(callback.clone());
        }
        if !self.loopback_any_port {
            return None;
        }
        let requested = Callback::parse(text).ok()?;
        let mut registered = self.callbacks.iter();
        registered
            .any(|callback| callback.is_loopback_with_any_port(&requested))
            .then_some(requested)
    }

    /// True if the client may use the device grant. Clients with a browser redirect do not need it,
    /// and each unneeded grant is another target for phishing.
    pub fn is_device(&self) -> bool {
        self.callbacks.is_empty() && self.document_host.is_none()
    }
}

/// Every registered client, and the rule for others.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    registered: Vec<Client>,
    accepts_documents: bool,
}

impl Clients {
    /// The registered client with this id.
    pub fn client(&self, id: &str) -> Option<&Client> {
        self.registered.iter().find(|client| client.id == id)
    }

    /// True if clients with a metadata document are accepted.
    pub fn accepts_documents(&self) -> bool {
        self.accepts_documents
    }

    /// The address of a metadata document, if the id is one and such clients are accepted. The id of
    /// a registered client never has a colon.
    pub(super) fn document_url(&self, id: &str) -> Option<DocumentUrl> {
        let url = self.accepts_documents.then(|| DocumentUrl::parse(id));
        url.flatten()
    }

    /// True if tokens of the client with this id are valid.
    pub fn is_accepted(&self, id: &str) -> bool {
        self.client(id).is_some() || self.document_url(id).is_some()
    }

    /// The client with this id at an endpoint for programs. Codes and tokens are bound to the id, so
    /// that the endpoints need no document.
    pub(super) fn named(&self, id: &str) -> Option<Client> {
        let of_document = || Some(Client::of_document(&self.document_url(id)?));
        self.client(id).cloned().or_else(of_document)
    }

    /// The origins of web pages that may call the MCP endpoints.
    pub fn origins(&self) -> impl Iterator<Item = &WebOrigin> {
        let clients = self.registered.iter();
        clients.flat_map(|client| &client.origins)
    }

    /// The ids of all registered clients.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.registered.iter().map(Client::id)
    }
}

impl OauthSection {
    /// Validates the clients and adds the built-in ones. `compat` adds the CLI of rstream.
    ///
    /// # Errors
    /// The first client that is invalid.
    pub fn check(self, compat: bool) -> Result<Clients, ConfigError> {
        let mut clients = vec![cli("svc-cli", "svc on the command line")];
        if compat {
            clients.push(cli("rstream-cli", "rstream on the command line"));
        }
        for (index, section) in self.clients.into_iter().enumerate() {
            let key = |name: &str| format!("oauth.clients.{index}.{name}");
            let client = section.check(key)?;
            let is_taken = |other: &Client| other.id == client.id;
            if RESERVED.contains(&client.id.as_str()) || clients.iter().any(is_taken) {
                let message = format!("{:?} is already the id of another client", client.id);
                return Err(ConfigError::new(key("id"), message));
            }
            clients.push(client);
        }
        Ok(Clients {
            registered: clients,
            accepts_documents: self.client_id_metadata,
        })
    }
}

impl ClientSection {
    fn check(self, key: impl Fn(&str) -> String) -> Result<Client, ConfigError> {
        let id = self
            .id
            .ok_or_else(|| ConfigError::new(key("id"), "this key is required"))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=64).contains(&id.len()) || !id.bytes().all(is_plain) {
            let message = "an id must have 1 to 64 letters, digits, dots, dashes and underscores";
            return Err(ConfigError::new(key("id"), message));
        }
        let name = self.name.unwrap_or_else(|| id.clone()).trim().to_owned();
        if !(1..=100).contains(&name.chars().count()) || name.chars().any(char::is_control) {
            let message = "a name must have 1 to 100 characters on one line";
            return Err(ConfigError::new(key("name"), message));
        }
        let mut callbacks = Vec::with_capacity(self.redirect_uris.len());
        for (index, text) in self.redirect_uris.iter().enumerate() {
            let key = || key(&format!("redirect_uris.{index}"));
            let callback = Callback::parse(text)
                .map_err(|error| ConfigError::new(key(), format!("{text:?}: {error}")))?;
            if callbacks.contains(&callback) {
                return Err(ConfigError::new(key(), "this callback is repeated"));
            }
            callbacks.push(callback);
        }
        let is_free = |callback: &Callback| callback.is_loopback_with_any_port(callback);
        if self.loopback_any_port && !callbacks.iter().any(is_free) {
            let message = "this key needs a callback that starts with http:// on this machine";
            let error = ConfigError::new(key("loopback_any_port"), message);
            return Err(error.depending_on(key("redirect_uris")));
        }
        if self.origins.len() > MAX_ORIGINS {
            let message = format!("a client may have {MAX_ORIGINS} origins at most");
            return Err(ConfigError::new(key("origins"), message));
        }
        let mut origins = Vec::with_capacity(self.origins.len());
        for (index, text) in self.origins.iter().enumerate() {
            let origin: WebOrigin = text.parse().map_err(|error| {
                ConfigError::new(
                    key(&format!("origins.{index}")),
                    format!("{text:?}: {error}"),
                )
            })?;
            origins.push(origin);
        }
        Ok(Client {
            id,
            name,
            callbacks,
            loopback_any_port: self.loopback_any_port,
            origins,
            document_host: None,
        })
    }
}

fn cli(id: &str, name: &str) -> Client {
    Client {
        id: id.to_owned(),
        name: name.to_owned(),
        callbacks: Vec::new(),
        loopback_any_port: false,
        origins: Vec::new(),
        document_host: None,
    }
}

/// RFC 6749 section 4.1.3.
pub(super) const CODE_GRANT: &str = "authorization_code";
/// RFC 8628 section 3.4.
pub(super) const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// More origins than any client has. Each request of a page is compared with all of them.
const MAX_ORIGINS: usize = 32;

/// Ids of built-in clients, enabled or not.
const RESERVED: [&str; 2] = ["svc-cli", "rstream-cli"];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: serde_json::Value, compat: bool) -> Result<Clients, String> {
        let section: OauthSection = serde_json::from_value(yaml).unwrap();
        section.check(compat).map_err(|error| error.to_string())
    }

    #[test]
    fn clients_are_found_by_id_and_callbacks_by_their_bytes() {
        let clients = check(
            serde_json::json!({"clients": [
                {"id": "web", "name": "Web", "redirect_uris": ["https://client.example/cb", "http://127.0.0.1:1/"]},
                {"id": "agent"},
            ]}),
            false,
        )
        .unwrap();
        let web = clients.client("web").unwrap();
        assert_eq!((web.name(), web.is_device()), ("Web", false));
        assert!(web.callback("https://client.example/cb").is_some());
        for other in [
            "",
            "https://client.example/cb/",
            "https://client.example/cb?",
            "https://client.example/CB",
            "https://Client.example/cb",
            "https://client.example:443/cb",
            "https://client.example/%63b",
            "http://127.0.0.1:2/",
        ] {
            assert!(web.callback(other).is_none(), "{other}");
        }
        let agent = clients.client("agent").unwrap();
        assert_eq!((agent.name(), agent.is_device()), ("agent", true));
        assert!(clients.client("svc-cli").is_some_and(Client::is_device));
        assert!(clients.client("rstream-cli").is_none() && clients.client("WEB").is_none());
        let compat = check(serde_json::json!({}), true).unwrap();
        assert!(compat.client("rstream-cli").is_some());
    }

    /// RFC 8252 section 7.3: only the port is free, only on this machine, and only if the client is
    /// registered so.
    #[test]
    fn the_port_of_a_loopback_callback_is_free_if_it_is_registered_so() {
        let clients = |any: bool| {
            check(
                serde_json::json!({"clients": [{
                    "id": "native",
                    "redirect_uris": [
                        "http://127.0.0.1:1/cb?x=1",
                        "http://[::1]/cb",
                        "http://localhost:8080/",
                        "https://client.example:1/cb",
                        "https://127.0.0.1:1/tls",
                    ],
                    "loopback_any_port": any,
                }]}),
                false,
            )
            .unwrap()
        };
        let (free, fixed) = (clients(true), clients(false));
        let is_registered = |clients: &Clients, text: &str| {
            let callback = clients.client("native").unwrap().callback(text);
            callback
                .inspect(|found| assert_eq!(found.as_str(), text))
                .is_some()
        };
        for text in [
            "http://127.0.0.1:49152/cb?x=1",
            "http://127.0.0.1/cb?x=1",
            "http://[::1]:49152/cb",
            "http://localhost:3000/",
            "http://localhost/",
        ] {
            assert!(is_registered(&free, text), "{text}");
            assert!(!is_registered(&fixed, text), "{text}");
        }
        for text in [
            "http://127.0.0.1:2/cb",
            "http://127.0.0.1:2/cb?x=2",
            "http://127.0.0.1:2/cb?x=1&y=2",
            "http://127.0.0.1:2/CB?x=1",
            "http://127.0.0.1:2/cb/?x=1",
            "http://127.0.0.2:2/cb?x=1",
            "http://127.0.0.1:2/%63b?x=1",
            "http://127.0.0.1:0/cb?x=1",
            "http://127.0.0.1:99999/cb?x=1",
            "http://127.0.0.1:/cb?x=1",
            "http://127.0.0.1:2/cb?x=1#f",
            "http://127.0.0.1:2@evil.example/cb?x=1",
            "http://evil.example:2/cb?x=1",
            "http://localhost.evil.example:1/",
            "http://LOCALHOST:1/",
            "http://[::1]:1/",
            "http://[0:0:0:0:0:0:0:1]:1/cb",
            "https://client.example:2/cb",
            "https://client.example/cb",
            "https://127.0.0.1:2/tls",
            "http://127.0.0.1:2/tls",
        ] {
            assert!(!is_registered(&free, text), "{text}");
        }
    }

    #[test]
    fn addresses_are_ids_only_if_the_configuration_accepts_documents() {
        let id = "https://app.example/client";
        let off = check(serde_json::json!({}), false).unwrap();
        assert!(!off.is_accepted(id) && off.named(id).is_none());
        let on = check(serde_json::json!({"client_id_metadata": true}), false).unwrap();
        assert!(on.is_accepted(id) && on.is_accepted("svc-cli"));
        assert!(!on.is_accepted("other") && !on.is_accepted("http://app.example/client"));
        let client = on.named(id).unwrap();
        assert_eq!((client.id(), client.name()), (id, "app.example"));
        assert!(!client.is_device() && client.callback("https://app.example/cb").is_none());
    }

    #[test]
    fn an_invalid_client_is_a_configuration_error() {
        let cb = "https://client.example/cb";
        for (client, key) in [
            (serde_json::json!([{}]), "oauth.clients.0.id"),
            (serde_json::json!([{"id": "a b"}]), "oauth.clients.0.id"),
            (serde_json::json!([{"id": "svc-cli"}]), "oauth.clients.0.id"),
            (
                serde_json::json!([{"id": "rstream-cli"}]),
                "oauth.clients.0.id",
            ),
            (
                serde_json::json!([{"id": "a"}, {"id": "a"}]),
                "oauth.clients.1.id",
            ),
            (
                serde_json::json!([{"id": "a", "name": "a\nb"}]),
                "oauth.clients.0.name",
            ),
            (
                serde_json::json!([{"id": "a", "name": " "}]),
                "oauth.clients.0.name",
            ),
            (
                serde_json::json!([{"id": "a", "redirect_uris": [cb, cb]}]),
                "oauth.clients.0.redirect_uris.1",
            ),
            (
                serde_json::json!([{"id": "a", "redirect_uris": [cb, "http://client.example/"]}]),
                "oauth.clients.0.redirect_uris.1",
            ),
            (
                serde_json::json!([{"id": "a", "redirect_uris": ["https://*.example/"]}]),
                "oauth.clients.0.redirect_uris.0",
            ),
            (
                serde_json::json!([{"id": "a", "redirect_uris": [cb], "loopback_any_port": true}]),
                "oauth.clients.0.loopback_any_port",
            ),
            (
                serde_json::json!([{"id": "a", "loopback_any_port": true}]),
                "oauth.clients.0.loopback_any_port",
            ),
            (
                serde_json::json!([{"id": "a", "origins": ["https://a.example", "*"]}]),
                "oauth.clients.0.origins.1",
            ),
            (
                serde_json::json!([{"id": "a", "origins": ["https://a.example/path"]}]),
                "oauth.clients.0.origins.0",
            ),
            (
                serde_json::json!([{"id": "a", "origins": ["null"]}]),
                "oauth.clients.0.origins.0",
            ),
        ] {
            let error = check(serde_json::json!({"clients": client}), false).unwrap_err();
            assert!(error.contains(key), "{client}: {error}");
        }
    }
}
