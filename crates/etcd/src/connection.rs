//! One connection to a member: HTTP/2, with or without TLS, and gRPC over it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic_prost::ProstCodec;

use crate::error::StoreError;
use crate::proto::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, WATCH};
use crate::settings::{Endpoint, Login};
use crate::tls::TlsFiles;

/// A connection. Clones share it; it is closed with the last one.
#[derive(Clone)]
pub(crate) struct Connection {
    grpc: Grpc<Transport>,
    token: Option<MetadataValue<Ascii>>,
    /// The task that reads and writes.
    _driver: Arc<AbortOnDropHandle<()>>,
}

/// A stream of responses, with its connection.
pub(crate) struct Responses<A> {
    stream: Streaming<A>,
    _connection: Connection,
}

impl Connection {
    /// Connects, and authenticates the user if there is one.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        tls: Option<&TlsFiles>,
        login: Option<&Login>,
    ) -> Result<Self, StoreError> {
        let failed = |problem: String| StoreError::Unreachable(format!("{endpoint}: {problem}"));
        let address = (endpoint.host.as_str(), endpoint.port);
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| failed(error.to_string()))?;
        let (sender, driver) = if endpoint.has_tls {
            let files = tls.ok_or_else(|| failed("no authorities are configured".to_owned()))?;
            let config = files.client_config();
            let config = config.map_err(|error| failed(error.to_string()))?;
            let name = ServerName::try_from(endpoint.host.clone());
            let name = name.map_err(|error| failed(error.to_string()))?;
            let secured = TlsConnector::from(config).connect(name, stream).await;
            handshake(secured.map_err(|error| failed(error.to_string()))?).await
        } else {
            handshake(stream).await
        }
        .map_err(|error| failed(error.to_string()))?;
        let origin: Uri = endpoint
            .to_string()
            .parse()
            .map_err(|_| failed("this is not an address".to_owned()))?;
        let grpc = Grpc::with_origin(Transport(sender), origin)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        let mut connection = Self {
            grpc,
            token: None,
            _driver: Arc::new(driver),
        };
        if let Some(login) = login {
            connection.authenticate(login).await?;
        }
        Ok(connection)
    }

    /// Sends a request and returns its only response.
    pub(crate) async fn unary<Q, A>(
        &self,
        method: &'static str,
        request: Q,
    ) -> Result<A, StoreError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc.clone();
        let path = PathAndQuery::from_static(method);
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer = grpc.unary(self.request(request), path, codec).await;
        let answer = answer.map_err(|status| StoreError::of_status(&status))?;
        Ok(answer.into_inner())
    }

    /// Sends a request to a method with streams in both directions, and returns the first response.
    pub(crate) async fn first_of_stream<Q, A>(
        &self,
        method: &'static str,
        request: Q,
    ) -> Result<A, StoreError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let requests = tokio_stream::once(request);
        let mut responses: Responses<A> = self.stream(method, requests).await?;
        responses.next().await
    }

    /// Opens a stream of changes. The stream of requests stays open.
    pub(crate) async fn watch<Q, A>(&self, request: Q) -> Result<Responses<A>, StoreError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let requests = tokio_stream::once(request).chain(tokio_stream::pending());
        self.stream(WATCH, requests).await
    }

    async fn stream<Q, A>(
        &self,
        method: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Responses<A>, StoreError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc.clone();
        let path = PathAndQuery::from_static(method);
        let mut request = self.request(requests);
        // A member without a leader ends the stream instead of keeping it silent.
        let metadata = request.metadata_mut();
        metadata.insert(HAS_LEADER, MetadataValue::from_static("true"));
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let opened = grpc.streaming(request, path, codec).await;
        let opened = opened.map_err(|status| StoreError::of_status(&status))?;
        Ok(Responses {
            stream: opened.into_inner(),
            _connection: self.clone(),
        })
    }

    fn request<Q>(&self, message: Q) -> tonic::Request<Q> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert(TOKEN, token.clone());
        }
        request
    }

    async fn authenticate(&mut self, login: &Login) -> Result<(), StoreError> {
        let request = AuthenticateRequest {
            name: login.user.clone(),
            password: login.password.expose().to_owned(),
        };
        let answer: AuthenticateResponse = self.unary(AUTHENTICATE, request).await?;
        let token: MetadataValue<Ascii> = answer
            .token
            .parse()
            .map_err(|_| StoreError::Unexpected("the token is not a header value".to_owned()))?;
        self.token = Some(token);
        Ok(())
    }
}

impl<A> Responses<A> {
    /// The next response.
    pub(crate) async fn next(&mut self) -> Result<A, StoreError> {
        let message = self.stream.message().await;
        message
            .map_err(|status| StoreError::of_status(&status))?
            .ok_or_else(|| StoreError::Unreachable("the member ended a stream".to_owned()))
    }
}

async fn handshake<S>(stream: S) -> Result<(SendRequest<Body>, AbortOnDropHandle<()>), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the cluster's store ended");
        }
    });
    Ok((sender, AbortOnDropHandle::new(driver)))
}

/// HTTP/2, as the service that the gRPC client sends requests to.
#[derive(Clone)]
struct Transport(SendRequest<Body>);

impl tower_service::Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Metadata of etcd: the token of the user, and the requirement of a leader.
const TOKEN: &str = "token";
const HAS_LEADER: &str = "hasleader";

/// etcd ends connections with pings more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A page of [`crate::membership`] has about 400 KiB, and fits into one window.
const WINDOW: u32 = 1024 * 1024;

/// A lease with all names of an engine ends in one response: 300,000 names of about 100 bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
