//! OAuth clients: registered in the configuration, and validated at startup.

use daemon::config::ConfigError;
use schemars::JsonSchema;
use serde::Deserialize;
use types::callback::Callback;

/// Section `oauth`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OauthSection {
    /// Clients that users may approve. `svc-cli` is built in.
    pub(super) clients: Vec<ClientSection>,
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
}

/// A client that users may approve. All clients are public: none has a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    id: String,
    name: String,
    callbacks: Vec<Callback>,
}

impl Client {
    /// Its `client_id`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name for users.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The registered callback that equals this text, byte for byte (OA-2).
    pub fn callback(&self, text: &str) -> Option<&Callback> {
        self.callbacks
            .iter()
            .find(|callback| callback.as_str() == text)
    }

    /// True if the client may use the device grant. Clients with a browser redirect do not need it,
    /// and each unneeded grant is another target for phishing.
    pub fn is_device(&self) -> bool {
        self.callbacks.is_empty()
    }
}

/// Every registered client.
#[derive(Clone, Debug, Default)]
pub struct Clients(Vec<Client>);

impl Clients {
    /// The client with this id.
    pub fn client(&self, id: &str) -> Option<&Client> {
        self.0.iter().find(|client| client.id == id)
    }

    /// The ids of all clients.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Client::id)
    }
}

impl OauthSection {
    /// Validates the clients and adds the built-in ones. `compat` adds the CLI of the other brand.
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
        Ok(Clients(clients))
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
        Ok(Client {
            id,
            name,
            callbacks,
        })
    }
}

fn cli(id: &str, name: &str) -> Client {
    Client {
        id: id.to_owned(),
        name: name.to_owned(),
        callbacks: Vec::new(),
    }
}

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
        ] {
            let error = check(serde_json::json!({"clients": client}), false).unwrap_err();
            assert!(error.contains(key), "{client}: {error}");
        }
    }
}
