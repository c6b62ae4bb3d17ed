//! A visitor of the temporary tunnel, which connects over the network like any other visitor.

use std::sync::Arc;

use bytes::Bytes;
use client::{ConnectError, HostPort, Proxies, Token, error::Step};
use http::{HeaderValue, Request, Response, StatusCode, Uri, header, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::Value;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, client::IntoClientRequest},
};
use transport::{Socket, TlsStream};

use crate::failure::chain;

/// The visitor's token, trust settings and destination.
pub(super) struct Visitor {
    pub(super) address: HostPort,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) token: Token,
    pub(super) proxies: Proxies,
}

/// An error message, and a suggested fix.
pub(super) type VisitError = (String, Option<String>);

/// A connection that requests are sent over.
pub(super) struct OpenConnection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    bearer: HeaderValue,
}

impl Visitor {
    /// Opens a connection for requests.
    pub(super) async fn open(&self) -> Result<OpenConnection, VisitError> {
        let stream = self.connect().await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| without_advice(&error))?;
        // The task ends when the sender is dropped. Errors reach the requests that wait for a
        // response.
        tokio::spawn(async move { drop(connection.await) });
        Ok(OpenConnection {
            sender,
            host: self.address.to_string(),
            bearer: self.bearer()?,
        })
    }

    /// Opens a WebSocket.
    pub(super) async fn socket(&self) -> Result<WebSocketStream<TlsStream>, VisitError> {
        let url = format!("wss://{}/socket", self.address);
        let mut request = url
            .into_client_request()
            .map_err(|error| without_advice(&error))?;
        let bearer = self.bearer()?;
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
        let stream = self.connect().await?;
        match client_async(request, stream).await {
            Ok((socket, _response)) => Ok(socket),
            Err(tungstenite::Error::Http(response)) => {
                let status = response.status();
                Err((format!("the edge answered {status} to the upgrade"), None))
            }
            Err(error) => Err(without_advice(&error)),
        }
    }

    async fn connect(&self) -> Result<TlsStream, VisitError> {
        let host = self.address.host();
        let socket = self.open_socket().await?;
        let name = self
            .address
            .server_name()
            .map_err(|error| without_advice(&error))?;
        let tls_result = transport::connect(Arc::clone(&self.tls), name, socket).await;
        tls_result.map_err(|error| {
            (
                format!("no TLS with {host}: {}", chain(&error)),
                Some("the certificate must cover the published names too".to_owned()),
            )
        })
    }

    async fn open_socket(&self) -> Result<Socket, VisitError> {
        let opened = client::open_socket(&self.address, &self.proxies, true).await;
        opened.map_err(|error| match &error {
            ConnectError::Network {
                step: Step::Resolve,
                source,
                ..
            } => (
                format!("{} has no address: {source}", self.address.host()),
                Some("published names need a wildcard record in DNS".to_owned()),
            ),
            ConnectError::Network { source, .. } => {
                (format!("cannot reach {}: {source}", self.address), None)
            }
            error => without_advice(error),
        })
    }

    fn bearer(&self) -> Result<HeaderValue, VisitError> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.token.expose()))
            .map_err(|_invalid| ("the token cannot be sent".to_owned(), None))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl OpenConnection {
    /// A request to the tunnel, with its token.
    pub(super) fn request(&self, target: &'static str) -> request::Builder {
        Request::builder()
            .uri(Uri::from_static(target))
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, &self.bearer)
    }

    /// Sends it. Any status other than 200 is an error.
    pub(super) async fn send(
        &mut self,
        request: Result<Request<Full<Bytes>>, http::Error>,
    ) -> Result<Response<Incoming>, VisitError> {
        let request = request.map_err(|error| without_advice(&error))?;
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(|error| without_advice(&error))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(refused(status, response).await),
        }
    }

    /// Sends it and reads the whole response body.
    pub(super) async fn send_and_read(
        &mut self,
        request: Result<Request<Full<Bytes>>, http::Error>,
    ) -> Result<Bytes, VisitError> {
        let response = self.send(request).await?;
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|error| (format!("the response ended early: {error}"), None))
    }
}

/// Describes a response of the edge that replaces the one of the service.
async fn refused(status: StatusCode, response: Response<Incoming>) -> VisitError {
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await;
    let problem: Value = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body.to_bytes()).ok())
        .unwrap_or_default();
    let detail = problem
        .get("detail")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let step = (status == StatusCode::FORBIDDEN)
        .then(|| "to visit, the token needs tunnels.streams.create-delete".to_owned());
    (format!("the edge answered {status}: {detail}"), step)
}

/// An error without a suggested fix.
pub(super) fn without_advice(error: &dyn std::error::Error) -> VisitError {
    (chain(error), None)
}

/// Limit of a response body in bytes. The service responds with one line.
const MAX_ANSWER: usize = 64 * 1024;
