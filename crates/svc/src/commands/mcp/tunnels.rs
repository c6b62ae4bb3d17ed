//! Tunnels to local ports that an AI model opens and closes.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use ::mcp::{Effect, Local, LocalAnswer, LocalTool};
use client::{Agent, CloseReason, Config, Properties, Status, Target, agent::AgentStatus};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use types::permission::Permission;

use crate::{connection::Connection, failure::chain};

/// The tunnels of this process. No engine is contacted before the first one.
pub(super) struct Tunnels {
    connection: Connection,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The agent for the next tunnel. Earlier agents exist until their tunnels are closed.
    agent: Option<(Config, Agent)>,
    open: BTreeMap<String, OpenTunnel>,
    /// Number of tunnels that were ever opened.
    count: u64,
}

struct OpenTunnel {
    port: u16,
    name: Option<String>,
    status: watch::Receiver<Status>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExposeArguments {
    port: u16,
    name: Option<String>,
    #[serde(default = "yes")]
    publish: bool,
    #[serde(default)]
    protocol: Protocol,
    token_auth: Option<bool>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    #[default]
    Http,
    Tls,
    Tcp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    id: String,
}

fn yes() -> bool {
    true
}

impl Tunnels {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            state: Mutex::default(),
        }
    }

    /// Closes all tunnels, and gives their streams a short time to finish.
    pub(super) async fn end(&self) {
        let mut state = self.state.lock().await;
        let open = mem::take(&mut state.open);
        let agent = state.agent.take();
        drop(state);
        if let Some((_config, agent)) = agent {
            agent.close(CLOSE_TIMEOUT).await;
        }
        // Tunnels of earlier agents.
        for open in open.values() {
            open.stop.cancel();
        }
    }

    async fn expose(&self, wanted: ExposeArguments) -> Result<Value, String> {
        let target: Target = match wanted.port {
            0 => return Err("port: expected 1 to 65535".to_owned()),
            port => port.to_string().parse().map_err(|error| chain(&error))?,
        };
        let mut properties = match wanted.protocol {
            Protocol::Http => Properties::http(),
            Protocol::Tls => Properties::tls(),
            Protocol::Tcp => Properties::tcp(),
        };
        properties.publish = Some(wanted.publish);
        properties.name.clone_from(&wanted.name);
        properties.token_auth = wanted.token_auth;
        let (id, mut status) = self.open(&wanted, properties, target).await?;
        let seen = timeout(OPEN_TIMEOUT, async {
            status
                .wait_for(|status| matches!(status, Status::Online(_) | Status::Closed(_)))
                .await
                .map(|status| status.clone())
        });
        let failure = match seen.await {
            Ok(Ok(Status::Online(online))) => {
                return Ok(json!({
                    "id": id,
                    "port": wanted.port,
                    "name": online.properties.name,
                    "status": "online",
                    "url": online.forwarding,
                }));
            }
            Ok(Ok(Status::Closed(closed))) => close_reason(&closed),
            Ok(_) => "the agent ended".to_owned(),
            Err(_late) => match &*status.borrow() {
                Status::Disconnected { error, .. } => {
                    format!("the engine is not reachable: {error}")
                }
                _ => "the engine does not answer".to_owned(),
            },
        };
        self.stop(&id).await.ok();
        Err(failure)
    }

    async fn open(
        &self,
        wanted: &ExposeArguments,
        properties: Properties,
        target: Target,
    ) -> Result<(String, watch::Receiver<Status>), String> {
        let mut state = self.state.lock().await;
        // Tunnels that the engine closed do not count towards the limit.
        state.open.retain(|_, open| !open.task.is_finished());
        if state.open.len() >= MAX_TUNNELS {
            return Err(format!(
                "the limit of {MAX_TUNNELS} tunnels is reached; stop one first"
            ));
        }
        // Read again, because a `svc login` may have changed it since the last tunnel.
        let config = self.connection.resolve();
        let config = config.map_err(|failure| failure.to_string())?;
        let kept = state.agent.take().filter(|(before, agent)| {
            let is_over = matches!(*agent.status().borrow(), AgentStatus::Ended(_));
            !is_over && is_same_target(before, &config)
        });
        let agent = match kept {
            Some((_before, agent)) => agent,
            None => Agent::start(config.clone()).map_err(|error| chain(&error))?,
        };
        let mut tunnel = agent.open(properties);
        state.agent = Some((config, agent));
        state.count = state.count.saturating_add(1);
        let id = format!("local-{}", state.count);
        let (status, stop) = (tunnel.status(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                _closed = tunnel.forward(target) => {}
                () = stopped.cancelled() => {}
            }
            tunnel.close().await;
        });
        let open = OpenTunnel {
            port: wanted.port,
            name: wanted.name.clone(),
            status: status.clone(),
            stop,
            task,
        };
        state.open.insert(id.clone(), open);
        Ok((id, status))
    }

    async fn list(&self) -> Value {
        let state = self.state.lock().await;
        let tunnels: Vec<_> = state
            .open
            .iter()
            .map(|(id, open)| open.to_json(id))
            .collect();
        json!({"tunnels": tunnels})
    }

    async fn stop(&self, id: &str) -> Result<Value, String> {
        let open = self.state.lock().await.open.remove(id);
        let open =
            open.ok_or("id: this tunnel does not exist; svc_local_tunnel_list lists them")?;
        open.stop.cancel();
        // If the engine is unreachable, it is notified when the agent reconnects.
        drop(timeout(CLOSE_TIMEOUT, open.task).await);
        Ok(json!({"stopped": id}))
    }
}

impl OpenTunnel {
    fn to_json(&self, id: &str) -> Value {
        let (status, url) = match &*self.status.borrow() {
            Status::Connecting => ("connecting", None),
            Status::Online(online) => ("online", Some(online.forwarding.clone())),
            Status::Disconnected { .. } => ("disconnected", None),
            Status::Closed(_) => ("closed", None),
        };
        json!({"id": id, "port": self.port, "name": self.name, "status": status, "url": url})
    }
}

/// True if both use the same engine, the same CA certificates and the same token.
fn is_same_target(one: &Config, other: &Config) -> bool {
    (&one.engine, &one.tokens) == (&other.engine, &other.tokens)
        && (&one.trust, &one.proxies) == (&other.trust, &other.proxies)
}

fn close_reason(closed: &CloseReason) -> String {
    match closed {
        CloseReason::Refused(refusal) => format!("the engine refuses: {}", refusal.message),
        CloseReason::Asked => "the tunnel was stopped".to_owned(),
        _ => "the engine closed the tunnel".to_owned(),
    }
}

/// The tunnels as MCP tools.
pub(super) struct TunnelTools(pub(super) Arc<Tunnels>);

impl Local for TunnelTools {
    fn tools(&self) -> Vec<LocalTool> {
        tools()
    }

    fn call(&self, name: &str, arguments: Map<String, Value>) -> Option<LocalAnswer> {
        let tunnels = Arc::clone(&self.0);
        Some(match name {
            EXPOSE => Box::pin(async move { tunnels.expose(read(arguments)?).await }),
            LIST => Box::pin(async move {
                let List {} = read(arguments)?;
                Ok(tunnels.list().await)
            }),
            STOP => Box::pin(async move {
                let Stop { id } = read(arguments)?;
                tunnels.stop(&id).await
            }),
            _ => return None,
        })
    }
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("arguments: {error}"))
}

const EXPOSE: &str = "svc_local_tunnel_expose";
const LIST: &str = "svc_local_tunnel_list";
const STOP: &str = "svc_local_tunnel_stop";

fn tools() -> Vec<LocalTool> {
    let tunnel = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "port": {"type": "integer"},
            "name": {"type": ["string", "null"]},
            "status": {"type": "string", "enum": ["connecting", "online", "disconnected", "closed"]},
            "url": {"type": ["string", "null"]},
        },
        "required": ["id", "port", "name", "status", "url"],
    });
    vec![
        LocalTool {
            name: EXPOSE,
            title: "Expose a local port",
            description: "Publishes a service that listens on a port of this machine, until it is \
                          stopped or this program exits. Anyone who knows the address can reach \
                          it, unless token_auth is true or publish is false: ask the user first.",
            effect: Effect::Adds,
            scopes: &[Permission::TunnelsTunnelsCreateDelete],
            input: json!({
                "type": "object",
                "properties": {
                    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                    "name": {"type": "string", "description": "The name in lists, and the start of the address."},
                    "publish": {"type": "boolean", "default": true, "description": "False: no public address; it can only be dialled by its name."},
                    "protocol": {"type": "string", "enum": ["http", "tls", "tcp"], "default": "http"},
                    "token_auth": {"type": "boolean", "description": "Visitors need a token."},
                },
                "required": ["port"],
                "additionalProperties": false,
            }),
            output: tunnel.clone(),
        },
        LocalTool {
            name: LIST,
            title: "List local tunnels",
            description: "The tunnels that this program opened, with their addresses.",
            effect: Effect::Reads,
            scopes: &[],
            input: json!({
                "type": "object",
                "properties": {},
                "required": [],
                "additionalProperties": false,
            }),
            output: json!({
                "type": "object",
                "properties": {"tunnels": {"type": "array", "items": tunnel}},
                "required": ["tunnels"],
            }),
        },
        LocalTool {
            name: STOP,
            title: "Stop a local tunnel",
            description: "Removes a local tunnel. Its address stops working.",
            effect: Effect::Destroys,
            scopes: &[],
            input: json!({
                "type": "object",
                "properties": {"id": {"type": "string"}},
                "required": ["id"],
                "additionalProperties": false,
            }),
            output: json!({
                "type": "object",
                "properties": {"stopped": {"type": "string"}},
                "required": ["stopped"],
            }),
        },
    ]
}

/// Limit of open tunnels: more than a user can keep track of, and a small load for an engine.
const MAX_TUNNELS: usize = 16;
/// Time limit to open a tunnel. A reachable engine responds sooner.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for open streams of a tunnel that closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// MC-3: each local tool has a title, hints, schemas and a security scheme.
    #[test]
    fn mc_3_every_local_tool_is_described() {
        for tool in tools() {
            insta::assert_json_snapshot!(tool.name, tool.document());
        }
    }
}
