//! Sends a recorded request again, directly to the service, changed or unchanged. It is recorded
//! like any other request, because its connection has a tap.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use client::tap::TappedStream;
use http::{HeaderName, HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Inspector, Kind,
    exchange::{Exchange, Fields, Version},
    mask,
    store::{Origin, Replay},
    view::FORM,
};

/// Changes to the request; absent members stay unchanged.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    method: Option<String>,
    path: Option<String>,
    headers: Option<Vec<Pair>>,
    body: Option<Content>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Content {
    Text(String),
    Base64(String),
}

/// Reason why a request is not sent, or was not accepted.
#[derive(Debug)]
pub(crate) enum ReplayError {
    /// The changed request cannot be sent.
    Changes(String),
    /// This exchange cannot be repeated.
    Exchange(&'static str),
    /// The service is not reachable, or does not accept the request.
    Service(String),
}

/// A prepared request.
pub(crate) struct PreparedRequest {
    request: http::Request<Full<Bytes>>,
    http2: bool,
    origin: Origin,
    id: Arc<OnceLock<u64>>,
}

impl PreparedRequest {
    /// Builds the request. Masked values in `changes` are replaced by the original ones.
    pub(crate) fn new(exchange: &Exchange, changes: Changes) -> Result<Self, ReplayError> {
        if exchange.summary.kind == Kind::WebSocket
            || exchange.request.fields.get("upgrade").is_some()
        {
            return Err(ReplayError::Exchange(
                "an upgraded connection cannot be repeated",
            ));
        }
        let kept = &exchange.request_body;
        let body = match changes.body {
            // Masked values of a form are replaced by the original ones.
            Some(Content::Text(text)) if exchange.request.fields.content_type() == FORM => {
                let was = String::from_utf8_lossy(&kept.kept);
                mask::restore_query(&text, &was).into_bytes()
            }
            Some(Content::Text(text)) => text.into_bytes(),
            Some(Content::Base64(text)) => {
                use base64::{Engine as _, engine::general_purpose::STANDARD};
                let decoded = STANDARD.decode(text);
                decoded.map_err(|_| ReplayError::Changes("the body is not base64".to_owned()))?
            }
            None if kept.size > kept.kept.len() as u64 || !kept.is_complete => {
                return Err(ReplayError::Exchange(
                    "not all of the request's body was stored; edit it to send another",
                ));
            }
            None => kept.kept.clone(),
        };
        let was = &exchange.request;
        let method = changes.method.unwrap_or_else(|| was.method.clone());
        let path = match changes.path {
            Some(path) => mask::restore_path(&path, &was.path),
            None => was.path.clone(),
        };
        let fields = match changes.headers {
            Some(headers) => restored(headers, &was.fields),
            None => was.fields.clone(),
        };
        let http2 = was.version == Version::Http2;
        let host = fields.get("host").unwrap_or(&was.host).to_owned();
        let scheme = if exchange.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let id = Arc::new(OnceLock::new());
        Ok(Self {
            request: request(
                &method,
                &path,
                &host,
                &fields,
                body,
                http2.then_some(scheme),
            )?,
            http2,
            origin: Origin {
                to: Arc::clone(&exchange.to),
                tls: exchange.tls.clone(),
                source_ip: None,
                replay: Some(Replay {
                    of: exchange.summary.id,
                    id: Arc::clone(&id),
                }),
            },
            id,
        })
    }

    /// Sends the request, and returns the id of the new exchange when the service responds. A task
    /// of `tasks` reads the rest of the response, until `stop`.
    pub(crate) async fn send(
        self,
        inspector: &Inspector,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<u64, ReplayError> {
        let to = Arc::clone(&self.origin.to);
        let unreachable =
            |error| ReplayError::Service(format!("the service at {to} is not reachable: {error}"));
        let stream = match &self.origin.tls {
            None => client::tap::connect(&to).await,
            Some(name) => {
                let protocol = if self.http2 { "h2" } else { "http/1.1" };
                client::tap::connect_tls(&to, name, protocol).await
            }
        };
        let stream = stream.map_err(unreachable)?;
        let tap = inspector.replay_tap(self.origin);
        let io = TokioIo::new(TappedStream::new(stream, tap));
        let id = Arc::clone(&self.id);
        let (answered, answer) = tokio::sync::oneshot::channel();
        let exchange = async move {
            let mut answered = Some(answered);
            let result = Box::pin(exchange(io, self.request, self.http2, &mut answered)).await;
            if let (Some(answered), Err(error)) = (answered, result) {
                drop(answered.send(Err(error)));
            }
        };
        let stop = stop.clone();
        drop(tasks.spawn(async move {
            let bounded = timeout(RESPONSE_TIMEOUT, exchange);
            stop.run_until_cancelled_owned(bounded).await;
        }));
        let answer = timeout(WAIT_LIMIT, answer).await;
        // A request that was sent is in the list, whatever its result.
        if let Some(id) = id.get() {
            return Ok(*id);
        }
        Err(match answer {
            Ok(Ok(Err(error))) => {
                ReplayError::Service(format!("the service did not accept the request: {error}"))
            }
            _ => ReplayError::Service("the service did not accept the request in time".to_owned()),
        })
    }
}

type ReplaySender = Option<tokio::sync::oneshot::Sender<Result<(), hyper::Error>>>;

/// One exchange over a separate connection.
async fn exchange<T>(
    io: TokioIo<T>,
    request: http::Request<Full<Bytes>>,
    http2: bool,
    answered: &mut ReplaySender,
) -> Result<(), hyper::Error>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    if http2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        let response = async { read(sender.send_request(request).await?, answered).await };
        with_connection(response, connection).await
    } else {
        let (mut sender, connection) = http1::handshake(io).await?;
        let response = async { read(sender.send_request(request).await?, answered).await };
        with_connection(response, connection).await
    }
}

/// Reads a response to its end, and reports its start.
async fn read(
    answer: http::Response<hyper::body::Incoming>,
    answered: &mut ReplaySender,
) -> Result<(), hyper::Error> {
    if let Some(answered) = answered.take() {
        // The caller may have disconnected.
        drop(answered.send(Ok(())));
    }
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        drop(frame?);
    }
    Ok(())
}

/// Runs a connection during a request over it, and returns early if the connection ends first.
async fn with_connection(
    asking: impl Future<Output = Result<(), hyper::Error>>,
    connection: impl Future<Output = Result<(), hyper::Error>>,
) -> Result<(), hyper::Error> {
    tokio::pin!(asking, connection);
    tokio::select! {
        biased;
        told = &mut asking => told,
        ended = &mut connection => {
            ended?;
            asking.await
        }
    }
}

/// Builds the request. Over HTTP/2 its URI includes the scheme.
fn request(
    method: &str,
    path: &str,
    host: &str,
    fields: &Fields,
    body: Vec<u8>,
    scheme: Option<&str>,
) -> Result<http::Request<Full<Bytes>>, ReplayError> {
    let bad = |what: &str| ReplayError::Changes(format!("{what} cannot be sent"));
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("the method"))?;
    let http2 = scheme.is_some();
    let uri = match scheme {
        Some(scheme) => format!("{scheme}://{host}{path}"),
        None => path.to_owned(),
    };
    let uri: Uri = uri.parse().map_err(|_| bad("the path"))?;
    if !path.starts_with('/') && path != "*" {
        return Err(ReplayError::Changes(
            "the path does not start with /".to_owned(),
        ));
    }
    let mut request = http::Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    for (name, value) in &fields.0 {
        let what = || format!("the header {name}");
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(&what()))?;
        if is_connection_header(&known, http2) {
            continue;
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad(&what()))?;
        request.headers_mut().append(known, value);
    }
    if !http2 && !request.headers().contains_key(header::HOST) {
        let host = HeaderValue::from_str(host).map_err(|_| bad("the host"))?;
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(request)
}

/// True for headers that the connection itself sets.
fn is_connection_header(name: &HeaderName, http2: bool) -> bool {
    const CONNECTION_HEADERS: [HeaderName; 6] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::EXPECT,
        HeaderName::from_static("keep-alive"),
    ];
    CONNECTION_HEADERS.contains(name) || (http2 && name == header::HOST)
}

fn restored(headers: Vec<Pair>, was: &Fields) -> Fields {
    let restored = headers.into_iter().map(|Pair { name, value }| {
        let same = was
            .0
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(&name));
        let values: Vec<_> = same.map(|(_, value)| value.as_str()).collect();
        let value = mask::restore_field(&name, &value, &values);
        (name, value)
    });
    Fields(restored.collect())
}

/// Maximum wait for the start of the response. The exchange is already in the list then.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// Maximum duration of reading a response, because an event stream has no end.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(5);
