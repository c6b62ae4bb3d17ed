//! The live event streams over real connections: snapshot, changes, credentials and ends.

mod credentials;
mod ends;
mod silent_watchers;
mod watching;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures_util::StreamExt;
use http::header::AUTHORIZATION;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::{TestApi, pat, token};

/// Client end of an event stream, over either transport.
enum Stream {
    Sse {
        response: reqwest::Response,
        read: String,
    },
    WebSocket(Box<WebSocketStream<MaybeTlsStream<TcpStream>>>),
}

const TRANSPORTS: [&str; 2] = ["/api/sse", "/api/websocket"];

impl Stream {
    /// Opens a stream, or returns the status of the refusal.
    async fn open(
        api: &TestApi,
        path: &str,
        query: &str,
        bearer: Option<&str>,
    ) -> Result<Self, u16> {
        if path == "/api/sse" {
            let mut request = api.http.get(api.url(&format!("{path}?{query}")));
            if let Some(bearer) = bearer {
                request = request.bearer_auth(bearer);
            }
            let response = request.send().await.unwrap();
            if response.status() != 200 {
                return Err(response.status().as_u16());
            }
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            assert_eq!(response.headers()["cache-control"], "no-store");
            assert_eq!(response.headers()["x-accel-buffering"], "no");
            return Ok(Self::Sse {
                response,
                read: String::new(),
            });
        }
        let mut request = format!("ws://{}{path}?{query}", api.address)
            .into_client_request()
            .unwrap();
        if let Some(bearer) = bearer {
            request
                .headers_mut()
                .insert(AUTHORIZATION, format!("Bearer {bearer}").parse().unwrap());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok((socket, _)) => Ok(Self::WebSocket(Box::new(socket))),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    /// Opens a stream with a token for everything.
    async fn watch(api: &TestApi, path: &str, params: &Value) -> Self {
        let query = format!("params={}", escaped(&params.to_string()));
        Self::open(api, path, &query, Some(&token(&pat())))
            .await
            .unwrap()
    }

    /// The next event, or the reason of the end.
    async fn next(&mut self) -> Result<Value, String> {
        match self {
            Self::Sse { response, read } => loop {
                if let Some((event, rest)) = read.split_once("\n\n") {
                    let event = event.to_owned();
                    *read = rest.to_owned();
                    if let Some(reason) = event.strip_prefix(": closed: ") {
                        assert_eq!(
                            response.chunk().await.unwrap(),
                            None,
                            "no data after the end"
                        );
                        return Err(reason.to_owned());
                    }
                    let data = event.strip_prefix("data: ").expect("one data line");
                    assert!(!data.contains('\n'));
                    return Ok(serde_json::from_str(data).unwrap());
                }
                let chunk = response
                    .chunk()
                    .await
                    .unwrap()
                    .expect("an end has a reason");
                read.push_str(std::str::from_utf8(&chunk).unwrap());
            },
            Self::WebSocket(socket) => loop {
                match socket.next().await.expect("an end has a reason").unwrap() {
                    Message::Text(text) => return Ok(serde_json::from_str(&text).unwrap()),
                    Message::Close(Some(frame)) => {
                        let code = match frame.reason.as_str() {
                            reason if reason.starts_with("the token") => CloseCode::Policy,
                            reason if reason.starts_with("too slow") => CloseCode::Again,
                            _ => CloseCode::Away,
                        };
                        assert_eq!(frame.code, code);
                        return Err(frame.reason.to_string());
                    }
                    Message::Ping(_) => {}
                    other => panic!("{other:?}"),
                }
            },
        }
    }

    async fn end(&mut self) -> String {
        loop {
            if let Err(reason) = self.next().await {
                return reason;
            }
        }
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        write!(escaped, "%{byte:02X}").unwrap();
    }
    escaped
}

/// The client's view of the state, by id. An event that does not fit is a failure.
#[derive(Debug, Default, PartialEq)]
struct ClientView(BTreeMap<String, Value>);

impl ClientView {
    fn apply(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        if kind == "state.initial" {
            assert!(
                self.0.is_empty(),
                "the snapshot comes once, as the first event"
            );
            for list in ["clients", "tunnels"] {
                for object in event["object"][list].as_array().unwrap() {
                    assert!(self.0.insert(id(object), object.clone()).is_none());
                }
            }
            return;
        }
        let object = &event["object"];
        let known = self.0.remove(&id(object)).is_some();
        assert_eq!(known, !kind.ends_with("created"), "{event}");
        if !kind.ends_with("deleted") {
            self.0.insert(id(object), object.clone());
        }
    }
}

fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}
