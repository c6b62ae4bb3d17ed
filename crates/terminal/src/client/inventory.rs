//! Servers among the tunnels of an engine: detection of servers, the data in their labels, and
//! selection of a server by name.

use std::collections::BTreeMap;

use client::{Config, Token, Tokens};
use serde::Serialize;
use serde_json::Value;
use types::id::{TunnelId, WebttyServerId};
use types::webtty::Transport;

use super::endpoint::{Endpoint, Url};

/// The label that marks a tunnel as a terminal server, and its value.
pub const APPLICATION: (&str, &str) = ("application-protocol", "svc.webtty");

/// Prefix of all other labels.
pub const PREFIX: &str = "svc.webtty.";

/// One server, as `svc webtty list` shows it. Unknown fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Server {
    /// `online` or `offline`.
    pub status: String,
    /// Id of its tunnel.
    pub tunnel_id: String,
    /// `webtty` or `http`; empty for a byte stream.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tunnel_protocol: String,
    /// `bytestream` or `datagram`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tunnel_type: String,
    /// HTTP version of an HTTP tunnel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub http_version: String,
    /// Transport of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Error in the stated transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport_error: Option<String>,
    /// True if the engine manages its sessions.
    pub managed: bool,
    /// Name of its tunnel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tunnel_name: String,
    /// Display name: the server's name, the tunnel's name, or the tunnel's id.
    pub target: String,
    /// Address for clients: its server id, the tunnel's name, or the tunnel's id.
    pub svc_url: String,
    /// True if it has a public address.
    pub publish: bool,
    /// The public address, with the port if it is not 443.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// True if the public address requires a token.
    pub token_auth: bool,
    /// Id of the registered record.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_id: String,
    /// Name of the registered server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// Id of its workspace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workspace_id: String,
    /// Id of its project.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_id: String,
    /// Id of the key to which sessions are sealed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host_key_id: String,
    /// `disabled` or `required`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub e2e: String,
    /// `none` or `required`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_proof: String,
    /// `disabled`, `explicit_key` or `workspace_managed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encryption_policy: String,
    /// `exec`, `fs`.
    pub capabilities: Vec<String>,
    /// Path of the endpoint for commands.
    pub exec_path: String,
    /// Path of the files.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_path: String,
    /// Backend of the files.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_backend: String,
    /// `read-write` or `read-only`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_mode: String,
    /// `spawn` or `login`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub execution_mode: String,
    /// Facts about the system: `os_family`, `arch`, `os_id` and so on.
    #[serde(flatten)]
    pub facts: BTreeMap<String, String>,
    /// Labels from its owner.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Reasons for which a name does not select one server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No server has this name.
    #[error("server `{0}` does not exist")]
    Unknown(String),
    /// Several servers have this name.
    #[error("several servers are called `{wanted}`: {}", ids.join(", "))]
    Ambiguous {
        /// The requested name.
        wanted: String,
        /// Unique ids of these servers.
        ids: Vec<String>,
    },
    /// The server is known, but offline.
    #[error("the server `{0}` is offline")]
    Offline(String),
}

/// Reasons for which this client cannot reach a known server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreachableError {
    /// The server states an unknown transport.
    #[error("cannot reach `{target}`: {why}")]
    Transport {
        /// Display name of the server.
        target: String,
        /// Description of the error.
        why: String,
    },
    /// The server only supports a transport that this client does not support.
    #[error("`{0}` supports only WebTransport")]
    WebTransport(String),
    /// Its tunnel has an invalid host, or its label an invalid path.
    #[error("`{0}` is not the address of a server")]
    Address(String),
}

impl Server {
    /// The server behind a tunnel of the Engine API; `None` for other tunnels.
    #[expect(
        clippy::too_many_lines,
        reason = "a table of fields, one step for each"
    )]
    pub fn of_tunnel(tunnel: &Value) -> Option<Self> {
        let text = |key: &str| {
            let value = tunnel.get(key).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let all = labels(tunnel);
        let protocol = text("protocol");
        let managed = protocol == "webtty";
        let (key, value) = APPLICATION;
        let says_so = all.get(key).is_some_and(|says| says == value);
        let lightweight = says_so && matches!(protocol.as_str(), "" | "http");
        if !managed && !lightweight {
            return None;
        }
        let label = |name: &str| {
            let value = all.get(&format!("{PREFIX}{name}"));
            value.cloned().unwrap_or_default()
        };
        let or_default = |value: String, usual: &str| {
            if value.is_empty() {
                usual.to_owned()
            } else {
                value
            }
        };
        let capabilities: Vec<String> = or_default(label("capabilities"), "exec")
            .split(',')
            .map(|word| word.trim().to_owned())
            .filter(|word| !word.is_empty())
            .collect();
        let has_files = capabilities.iter().any(|word| word == "fs");
        let of_files = |name: &str, usual: &str| {
            if has_files {
                or_default(label(name), usual)
            } else {
                String::new()
            }
        };
        let stated = label("transport");
        let transport = match stated.as_str() {
            "" => Ok(Transport::Websocket),
            word => word.parse().map_err(|_unknown| word.to_owned()),
        };
        let publish = tunnel.get("publish").and_then(Value::as_bool);
        let mut server = Self {
            status: or_default(text("status"), "online"),
            tunnel_id: text("id"),
            tunnel_protocol: protocol,
            tunnel_type: text("type"),
            http_version: text("http_version"),
            transport_error: transport
                .as_ref()
                .err()
                .map(|word| format!("`{word}` is not a transport")),
            transport: transport.ok(),
            managed,
            tunnel_name: text("name"),
            publish: publish.unwrap_or_default(),
            host: or_default(text("host"), &text("hostname")),
            token_auth: tunnel
                .get("token_auth")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
            // Any client that may open a tunnel writes its labels. The engine verifies the identity
            // of a registered server, so another tunnel cannot impersonate it.
            server_id: if managed {
                label("server_id")
            } else {
                String::new()
            },
            server_name: if managed {
                label("server_name")
            } else {
                String::new()
            },
            workspace_id: text("workspace_id"),
            project_id: text("project_id"),
            host_key_id: label("host_key_id"),
            e2e: label("e2e"),
            client_proof: label("client_proof"),
            encryption_policy: label("encryption_policy"),
            exec_path: or_default(label("exec.path"), "/"),
            fs_path: of_files("fs.path", "/fs"),
            fs_backend: of_files("fs.backend", "webdav"),
            fs_mode: of_files("fs.mode", "read-write"),
            capabilities,
            execution_mode: label("execution.mode"),
            facts: FACTS
                .iter()
                .map(|name| ((*name).to_owned(), label(name)))
                .filter(|(_, value)| !value.is_empty())
                .collect(),
            labels: all
                .iter()
                .filter_map(|(key, value)| {
                    let own = key.strip_prefix(PREFIX)?.strip_prefix("label.")?;
                    Some((own.to_owned(), value.clone()))
                })
                .collect(),
            ..Self::default()
        };
        let first = |names: [&String; 3]| {
            let known = names.into_iter().find(|name| !name.is_empty());
            known.cloned().unwrap_or_default()
        };
        server.target = first([&server.server_name, &server.tunnel_name, &server.tunnel_id]);
        let reached = first([&server.server_id, &server.tunnel_name, &server.tunnel_id]);
        server.svc_url = format!("svc://{reached}");
        Some(server)
    }

    /// The endpoint of the server: its public address if it has one, otherwise a tunnel of its
    /// engine.
    ///
    /// `config` belongs to the engine that lists the server. [`bearer`](Self::bearer) selects the
    /// token for a public server.
    ///
    /// # Errors
    /// [`UnreachableError`].
    pub fn endpoint(
        &self,
        config: Config,
        bearer: Option<Token>,
    ) -> Result<Endpoint, UnreachableError> {
        if let Some(why) = &self.transport_error {
            return Err(UnreachableError::Transport {
                target: self.target.clone(),
                why: why.clone(),
            });
        }
        if self.transport == Some(Transport::Webtransport) {
            return Err(UnreachableError::WebTransport(self.target.clone()));
        }
        let address = format!("wss://{}{}", self.host, self.exec_path);
        // The path is from the owner of the tunnel. Without the leading `/` it would continue the
        // host name.
        if !self.exec_path.starts_with('/') {
            return Err(UnreachableError::Address(address));
        }
        if self.publish && !self.host.is_empty() {
            return match Url::parse(&address) {
                Ok(url) => Ok(Endpoint::Url {
                    url,
                    bearer: self.bearer(bearer, &config.tokens),
                    trust: config.trust,
                    proxies: config.proxies,
                }),
                Err(_) => Err(UnreachableError::Address(address)),
            };
        }
        // An engine that manages sessions uses plain frames for dialled streams, whatever the
        // server's transport is.
        let transport = if self.managed {
            Transport::Plain
        } else {
            self.transport.unwrap_or(Transport::Websocket)
        };
        Ok(Endpoint::Private {
            config: Box::new(config),
            tunnel: self.tunnel_id.clone(),
            transport,
            path: self.exec_path.clone(),
        })
    }

    /// The token for its public address: `given`, or else the token of its engine if the engine
    /// requires one. If none is required, the engine would forward the token to the owner of the
    /// tunnel, who must not get it.
    pub fn bearer(&self, given: Option<Token>, engine: &Tokens) -> Option<Token> {
        let own = || engine.fixed().filter(|_| self.managed || self.token_auth);
        given.or_else(|| own().cloned())
    }

    /// True if the client must not open an unsealed session.
    pub fn requires_seal(&self) -> bool {
        self.e2e == "required"
            || !self.host_key_id.is_empty()
            || !matches!(self.encryption_policy.as_str(), "" | "disabled")
    }

    /// Names under which its key may be stored, most reliable first.
    pub fn key_names(&self) -> Vec<&str> {
        let names = [
            &self.server_id,
            &self.tunnel_name,
            &self.host,
            &self.tunnel_id,
        ];
        let names = names.into_iter().map(String::as_str);
        names.filter(|name| !name.is_empty()).collect()
    }

    fn is_called(&self, wanted: &str) -> bool {
        [
            &self.server_id,
            &self.tunnel_name,
            &self.tunnel_id,
            &self.server_name,
        ]
        .into_iter()
        .any(|name| name == wanted)
    }
}

/// The servers among the tunnels of an engine.
pub fn servers(tunnels: &[Value]) -> Vec<Server> {
    tunnels.iter().filter_map(Server::of_tunnel).collect()
}

/// Finds a server by server id, name or tunnel id.
///
/// Ids have precedence over names. Otherwise any client that may open a tunnel could name it like
/// the id of another server, and make this id ambiguous.
///
/// # Errors
/// No server matches, several match, or the server is offline.
pub fn find<'a>(servers: &'a [Server], wanted: &str) -> Result<&'a Server, FindError> {
    let by_id = |server: &&Server| server.server_id == wanted || server.tunnel_id == wanted;
    let mut called: Vec<_> = servers.iter().filter(by_id).collect();
    // An offline server must not be replaced by a tunnel that is named like its id.
    let is_id = wanted.parse::<WebttyServerId>().is_ok() || wanted.parse::<TunnelId>().is_ok();
    if called.is_empty() && !is_id {
        called = servers
            .iter()
            .filter(|server| server.is_called(wanted))
            .collect();
    }
    let online = called.iter().filter(|server| server.status == "online");
    let online: Vec<_> = online.copied().collect();
    match (online.as_slice(), called.is_empty()) {
        ([server], _) => Ok(server),
        ([], true) => Err(FindError::Unknown(wanted.to_owned())),
        ([], false) => Err(FindError::Offline(wanted.to_owned())),
        (several, _) => Err(FindError::Ambiguous {
            wanted: wanted.to_owned(),
            ids: several
                .iter()
                .map(|server| format!("svc://{}", server.tunnel_id))
                .collect(),
        }),
    }
}

fn labels(tunnel: &Value) -> BTreeMap<String, String> {
    let labels = tunnel.get("labels").and_then(Value::as_object);
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(pair).collect()
}

/// Labels with facts about a server's system.
const FACTS: [&str; 8] = [
    "os_family",
    "arch",
    "os_id",
    "os_version_id",
    "os_version_codename",
    "os_pretty_name",
    "kernel_release",
    "hostname",
];
