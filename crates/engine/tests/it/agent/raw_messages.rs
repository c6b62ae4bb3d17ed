//! The agent protocol message by message: agents and dialling clients whose messages the test
//! chooses.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testing::{TestEngine, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::message::{
    BoolValue, ClientDetails, ControlChannelLiveness, ControlChannelOk, ControlChannelOutcome,
    OpenControlChannelReq, OpenTunnelReq, ProxyConnReq, ProxyReq, ProxyRsp, StreamOutcome,
    StreamReq, StreamRsp, TunnelOutcome, TunnelProperties,
};
use wire::{Decoder, Error, Kind};

/// A connection with the agent protocol.
pub(crate) struct Wire {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
}

impl Wire {
    pub(crate) async fn connect(engine: &TestEngine) -> Self {
        Self::connect_through(engine, engine.addr()).await
    }

    /// Connects to the engine through another address.
    pub(crate) async fn connect_through(engine: &TestEngine, addr: SocketAddr) -> Self {
        Self::connect_as(engine, addr, engine.host()).await
    }

    /// Connects to the engine under another name, such as that of a project.
    pub(crate) async fn connect_as(engine: &TestEngine, addr: SocketAddr, name: &str) -> Self {
        let socket = TcpStream::connect(addr).await.unwrap();
        let config = engine.ca().client(&["svc/1"]);
        let name = name.to_owned().try_into().unwrap();
        let stream = TlsConnector::from(config).connect(name, socket).await;
        Self {
            stream: stream.unwrap(),
            decoder: Decoder::new(),
        }
    }

    pub(crate) async fn send(&mut self, kind: Kind) {
        let mut frame = Vec::new();
        wire::encode(&kind.into(), &mut frame).unwrap();
        self.send_bytes(&frame).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        within("room for bytes", self.stream.write_all(bytes))
            .await
            .unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next message without reading further bytes, or nothing if the engine has closed the
    /// connection.
    pub(crate) async fn next(&mut self) -> Option<Kind> {
        loop {
            if let Some(message) = self.decoder.next().unwrap() {
                return message.kind;
            }
            let mut bytes = vec![0; self.decoder.missing().unwrap()];
            let read = self.stream.read_exact(&mut bytes);
            within("message from the engine", read).await.ok()?;
            self.decoder.push(&bytes);
        }
    }

    /// All messages until the engine closes the connection.
    pub(crate) async fn rest(mut self) -> Vec<Kind> {
        let mut said = Vec::new();
        while let Some(kind) = self.next().await {
            said.push(kind);
        }
        said
    }

    /// The stream for the bytes after the last message.
    pub(crate) fn into_stream(self) -> TlsStream<TcpStream> {
        assert!(self.decoder.into_rest().is_empty(), "bytes were read ahead");
        self.stream
    }

    /// Sends a hello with these details and reads the answer.
    pub(crate) async fn hello(
        &mut self,
        details: Option<ClientDetails>,
        heartbeat_interval_ms: Option<u32>,
    ) -> Result<ControlChannelOk, Error> {
        let liveness = heartbeat_interval_ms.map(|heartbeat_interval_ms| ControlChannelLiveness {
            heartbeat_interval_ms,
            heartbeat_timeout_ms: 0,
        });
        let hello = OpenControlChannelReq {
            client_details: details,
            liveness,
        };
        self.send(Kind::OpenControlChannelReq(hello)).await;
        match self.next().await {
            Some(Kind::OpenControlChannelRsp(answer)) => match answer.outcome {
                Some(ControlChannelOutcome::Ok(ok)) => Ok(ok),
                Some(ControlChannelOutcome::Error(error)) => Err(error),
                None => panic!("an empty answer"),
            },
            other => panic!("not the answer to a hello: {other:?}"),
        }
    }
}

/// Details as the published clients send them, with a token of these claims.
pub(crate) fn details(engine: &TestEngine, claims: Value) -> ClientDetails {
    ClientDetails {
        agent: Some("plain-agent".into()),
        token: Some(engine.token(claims).into()),
        protocol_version: Some("1.4.5".into()),
        ..ClientDetails::default()
    }
}

/// An agent without extensions.
pub(crate) struct PlainAgent {
    pub(crate) channel: Wire,
    pub(crate) client_id: String,
    requests: u32,
}

impl PlainAgent {
    /// Connects with the default identity of a test, which may do everything.
    pub(crate) async fn connect(engine: &TestEngine) -> Self {
        Self::connect_as(engine, json!({})).await
    }

    pub(crate) async fn connect_as(engine: &TestEngine, claims: Value) -> Self {
        Self::over(Wire::connect(engine).await, engine, claims, None).await
    }

    pub(crate) async fn over(
        mut channel: Wire,
        engine: &TestEngine,
        claims: Value,
        heartbeat_interval_ms: Option<u32>,
    ) -> Self {
        let details = details(engine, claims);
        let ok = channel.hello(Some(details), heartbeat_interval_ms).await;
        Self {
            channel,
            client_id: ok.unwrap().client_id,
            requests: 0,
        }
    }

    /// Requests a tunnel.
    pub(crate) async fn open(
        &mut self,
        properties: TunnelProperties,
    ) -> Result<TunnelProperties, Error> {
        self.requests += 1;
        let request_id = self.requests.to_string();
        let request = OpenTunnelReq {
            request_id: request_id.clone(),
            tunnel_properties: Some(properties),
        };
        self.channel.send(Kind::OpenTunnelReq(request)).await;
        match self.channel.next().await {
            Some(Kind::OpenTunnelRsp(answer)) => {
                assert_eq!(answer.request_id, request_id);
                match answer.outcome.expect("an outcome") {
                    TunnelOutcome::TunnelProperties(properties) => Ok(*properties),
                    TunnelOutcome::Error(error) => Err(error),
                }
            }
            other => panic!("not the answer to a request for a tunnel: {other:?}"),
        }
    }

    /// Waits until the engine requests a connection.
    pub(crate) async fn next_stream_request(&mut self) -> ProxyConnReq {
        match self.channel.next().await {
            Some(Kind::ProxyConnReq(request)) => request,
            other => panic!("not a request for a connection: {other:?}"),
        }
    }
}

/// Opens a connection for a stream. Returns it, or the engine's refusal. With `zero_rtt` there is no
/// answer to wait for.
pub(crate) async fn bring(
    engine: &TestEngine,
    stream_id: &str,
    secret: &str,
    zero_rtt: bool,
) -> Result<Wire, Error> {
    let mut connection = Wire::connect(engine).await;
    let request = ProxyReq {
        client_details: Some(ClientDetails {
            token: Some(secret.into()),
            ..ClientDetails::default()
        }),
        stream_id: stream_id.to_owned(),
        zero_rtt: Some(BoolValue { value: zero_rtt }),
    };
    connection.send(Kind::ProxyReq(request)).await;
    if zero_rtt {
        return Ok(connection);
    }
    match connection.next().await {
        Some(Kind::ProxyRsp(ProxyRsp { error: None })) => Ok(connection),
        Some(Kind::ProxyRsp(ProxyRsp { error: Some(error) })) => Err(error),
        other => panic!("not the answer to a data connection: {other:?}"),
    }
}

/// Dials a tunnel and returns the connection with the stream's id, or the refusal.
pub(crate) async fn dial(
    engine: &TestEngine,
    claims: Value,
    tunnel_id_name: &str,
) -> Result<(TlsStream<TcpStream>, String), Error> {
    let mut connection = Wire::connect(engine).await;
    let request = StreamReq {
        client_details: Some(details(engine, claims)),
        tunnel_id_name: tunnel_id_name.to_owned(),
        ..StreamReq::default()
    };
    connection.send(Kind::StreamReq(request)).await;
    match connection.next().await {
        Some(Kind::StreamRsp(StreamRsp { outcome })) => match outcome.expect("an outcome") {
            StreamOutcome::StreamId(id) => Ok((connection.into_stream(), id)),
            StreamOutcome::Error(error) => Err(error),
        },
        other => panic!("not the answer to a dial: {other:?}"),
    }
}

/// A published HTTP tunnel with this label as its hostname.
pub(crate) fn http(label: &str) -> TunnelProperties {
    TunnelProperties {
        publish: Some(true.into()),
        protocol: Some("http".into()),
        hostname: Some(label.into()),
        ..TunnelProperties::default()
    }
}
