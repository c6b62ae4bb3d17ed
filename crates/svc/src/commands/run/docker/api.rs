//! The three required calls of the Docker Engine API, over its Unix socket.
//!
//! This is a custom client, because the one crate for the whole API adds a hundred types and a
//! second date library for a few fields. The paths have no version, which selects the engine's
//! newest API version. These fields have been stable for a long time.

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::HOST};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use transport::unix::UnixStream;

/// A Docker engine at its socket.
#[derive(Debug)]
pub(super) struct Api {
    socket: PathBuf,
}

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// No process listens on the socket.
    #[error("cannot reach {socket}")]
    Unreachable { socket: String, source: io::Error },
    /// The connection failed.
    #[error("the connection was lost")]
    Connection(#[from] hyper::Error),
    /// The engine returned an error.
    #[error("Docker answered {status} to {path}")]
    Refused { status: StatusCode, path: String },
    /// The response timed out.
    #[error("no answer in time")]
    TimedOut,
    /// The response is larger than the limit.
    #[error("a response is too large")]
    TooLarge,
    /// The response is not the expected JSON.
    #[error("a response cannot be parsed")]
    NotUnderstood(#[from] serde_json::Error),
    /// The event stream ended.
    #[error("the event stream ended")]
    Ended,
    /// The request could not be written.
    #[error("a request cannot be created")]
    Request(#[from] http::Error),
}

/// The used part of `GET /containers/{id}/json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    /// Starts with a slash.
    pub(super) name: String,
    pub(super) state: State,
    pub(super) config: Config,
    #[serde(default)]
    pub(super) host_config: HostConfig,
    pub(super) network_settings: NetworkSettings,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    pub(super) running: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Config {
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<String, String>>,
    /// Keys such as `80/tcp`.
    #[serde(default)]
    pub(super) exposed_ports: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HostConfig {
    #[serde(default)]
    pub(super) network_mode: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NetworkSettings {
    #[serde(default)]
    pub(super) networks: Option<BTreeMap<String, Network>>,
    #[serde(default)]
    pub(super) ports: Option<BTreeMap<String, Option<Vec<Binding>>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Network {
    #[serde(default, rename = "IPAddress")]
    pub(super) ip_address: String,
    #[serde(default, rename = "GlobalIPv6Address")]
    pub(super) ipv6_address: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Binding {
    #[serde(default)]
    pub(super) host_ip: String,
    pub(super) host_port: String,
}

/// An item of `GET /containers/json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerSummary {
    id: String,
}

/// An item of `GET /events`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Event {
    #[serde(default, rename = "Type")]
    kind: String,
    #[serde(default)]
    actor: Actor,
}

#[derive(Debug, Default, Deserialize)]
struct Actor {
    #[serde(default, rename = "ID")]
    id: String,
    /// For a container event its labels and name, for a network event the container.
    #[serde(default, rename = "Attributes")]
    attributes: BTreeMap<String, String>,
}

impl Event {
    /// The container that the event concerns.
    pub(super) fn container(&self) -> Option<&str> {
        match self.kind.as_str() {
            "container" => Some(&self.actor.id),
            "network" => self.actor.attributes.get("container").map(String::as_str),
            _ => None,
        }
    }

    /// True if the container has the enabling label.
    pub(super) fn is_labelled(&self) -> bool {
        self.actor.attributes.contains_key(super::labels::ENABLE)
    }
}

impl Api {
    /// The engine at this socket. Does not connect yet.
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Ids of the running containers with our label.
    pub(super) async fn enabled_containers(&self) -> Result<Vec<String>, ApiError> {
        let path = format!("/containers/json?filters={LABEL_FILTER}");
        let listed: Vec<ContainerSummary> = self.get_json(&path).await?.ok_or(ApiError::Ended)?;
        Ok(listed.into_iter().map(|item| item.id).collect())
    }

    /// Inspects one container. `None` if it does not exist any more.
    pub(super) async fn container(&self, id: &str) -> Result<Option<Container>, ApiError> {
        // Ids are hexadecimal. Anything else must not become part of a path.
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        self.get_json(&format!("/containers/{id}/json")).await
    }

    /// Subscribes to events from now on.
    pub(super) async fn events(&self) -> Result<Events, ApiError> {
        let (response, connection) = self.get(&format!("/events?filters={EVENT_FILTER}")).await?;
        Ok(Events {
            body: response.into_body(),
            buffer: Vec::new(),
            _connection: connection,
        })
    }

    async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, ApiError> {
        let answer = timeout(ANSWER, async {
            let (response, _connection) = match self.get(path).await {
                Err(ApiError::Refused { status, .. }) if status == StatusCode::NOT_FOUND => {
                    return Ok(None);
                }
                requested => requested?,
            };
            let body = Limited::new(response.into_body(), MAX_ANSWER);
            let bytes = body.collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return ApiError::TooLarge;
                }
                match error.downcast::<hyper::Error>() {
                    Ok(error) => ApiError::Connection(*error),
                    Err(_other) => ApiError::Ended,
                }
            })?;
            Ok(Some(serde_json::from_slice(&bytes.to_bytes())?))
        });
        answer.await.unwrap_or(Err(ApiError::TimedOut))
    }

    /// Sends a request on its own connection, and waits for the response head.
    async fn get(
        &self,
        path: &str,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), ApiError> {
        let requested = timeout(ANSWER, async {
            let unreachable = |source| ApiError::Unreachable {
                socket: self.socket.display().to_string(),
                source,
            };
            let stream = UnixStream::connect(&self.socket)
                .await
                .map_err(unreachable)?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            let connection = tokio::spawn(async move {
                // The request that waits for the response gets the error.
                drop(connection.await);
            });
            let connection = AbortOnDropHandle::new(connection);
            let request = Request::get(path)
                .header(HOST, "docker")
                .body(Empty::<Bytes>::new())?;
            let response = sender.send_request(request).await?;
            Ok((response, connection))
        });
        let (response, connection) = requested.await.unwrap_or(Err(ApiError::TimedOut))?;
        if response.status() != StatusCode::OK {
            return Err(ApiError::Refused {
                status: response.status(),
                path: path.split('?').next().unwrap_or_default().to_owned(),
            });
        }
        Ok((response, connection))
    }
}

/// A stream of JSON objects, as long as the engine runs.
pub(super) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    _connection: AbortOnDropHandle<()>,
}

impl Events {
    /// The next event. There is no timeout, because nothing may happen for days.
    pub(super) async fn next(&mut self) -> Result<Event, ApiError> {
        loop {
            if let Some(event) = self.buffered()? {
                return Ok(event);
            }
            let frame = self.body.frame().await.ok_or(ApiError::Ended)??;
            if let Ok(data) = frame.into_data() {
                if self.buffer.len() + data.len() > MAX_EVENT {
                    return Err(ApiError::TooLarge);
                }
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// The first complete event in the buffer. Chunks can end anywhere.
    fn buffered(&mut self) -> Result<Option<Event>, ApiError> {
        let mut read = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Event>();
        let event = match read.next() {
            None => None,
            Some(Ok(event)) => Some(event),
            Some(Err(error)) if error.is_eof() => return Ok(None),
            Some(Err(error)) => return Err(error.into()),
        };
        let end = read.byte_offset();
        self.buffer.drain(..end);
        Ok(event)
    }
}

/// `{"label":["svc.enable"],"status":["running"]}`. The label reader ignores containers whose label
/// is not `true`.
const LABEL_FILTER: &str =
    "%7B%22label%22%3A%5B%22svc.enable%22%5D%2C%22status%22%3A%5B%22running%22%5D%7D";

/// `{"type":["container","network"],"event":["start","die","destroy","rename","connect",
/// "disconnect"]}`: events that change if a container runs, its name, or its addresses.
const EVENT_FILTER: &str = "%7B%22type%22%3A%5B%22container%22%2C%22network%22%5D%2C%22event%22%3A\
    %5B%22start%22%2C%22die%22%2C%22destroy%22%2C%22rename%22%2C%22connect%22%2C%22disconnect%22\
    %5D%7D";

/// Time limit of a call. A local engine responds within milliseconds, a busy one in seconds.
const ANSWER: Duration = Duration::from_secs(10);

/// Limit of a response in bytes. A list of a thousand containers has some MiB.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// An event contains the labels of its container, some KiB. One read returns several events.
const MAX_EVENT: usize = 1024 * 1024;
