//! A gRPC service with all four kinds of calls, and its client, without generated code.
//!
//! | call | what it does |
//! |---|---|
//! | [`Client::double`] | unary: answers twice the number; status `OUT_OF_RANGE` for one below 0 |
//! | [`Client::count`] | server streaming: answers 1 to the number |
//! | [`Client::sum`] | client streaming: answers the sum |
//! | [`Client::echo`] | both directions: answers each number immediately |

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// The one message.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Number {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// A client of the service.
pub struct Client(tonic::client::Grpc<Channel>);

impl Client {
    /// Connects to `addr` without TLS.
    pub async fn connect_plain(addr: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{addr}")).expect("an address");
        Self(tonic::client::Grpc::new(
            endpoint.connect().await.expect("a connection"),
        ))
    }

    /// Connects to `addr` with TLS for `host`. The configuration's ALPN must be `h2`.
    pub async fn connect(addr: SocketAddr, host: &str, tls: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from(host.to_owned()).expect("a host name");
        let connector = TlsConnector::from(Arc::clone(tls));
        let dial = tower::service_fn(move |_uri| {
            let (name, connector) = (name.clone(), connector.clone());
            async move {
                let stream = TcpStream::connect(addr).await?;
                connector.connect(name, stream).await.map(TokioIo::new)
            }
        });
        let endpoint =
            Endpoint::from_shared(format!("https://{host}:{}", addr.port())).expect("an address");
        let channel = endpoint
            .connect_with_connector(dial)
            .await
            .expect("a connection");
        Self(tonic::client::Grpc::new(channel))
    }

    /// Calls `Double` with metadata, and returns the metadata of the response.
    pub async fn double(
        &mut self,
        value: i64,
        metadata: MetadataMap,
    ) -> Result<(i64, MetadataMap), Status> {
        self.ready().await;
        let mut request = Request::new(Number { value });
        *request.metadata_mut() = metadata;
        let path = PathAndQuery::from_static(DOUBLE);
        let response: Response<Number> = self.0.unary(request, path, ProstCodec::default()).await?;
        let metadata = response.metadata().clone();
        Ok((response.into_inner().value, metadata))
    }

    /// Calls `Count`.
    pub async fn count(&mut self, value: i64) -> Result<Streaming<Number>, Status> {
        self.ready().await;
        let path = PathAndQuery::from_static(COUNT);
        let request = Request::new(Number { value });
        let response = self
            .0
            .server_streaming(request, path, ProstCodec::default())
            .await?;
        Ok(response.into_inner())
    }

    /// Calls `Sum`.
    pub async fn sum(
        &mut self,
        values: impl Stream<Item = i64> + Send + 'static,
    ) -> Result<i64, Status> {
        self.ready().await;
        let path = PathAndQuery::from_static(SUM);
        let values: Request<_> = Request::new(values.map(Number::of));
        let response: Response<Number> = self
            .0
            .client_streaming(values, path, ProstCodec::default())
            .await?;
        Ok(response.into_inner().value)
    }

    /// Calls `Echo`. The response starts before the first number is sent.
    pub async fn echo(
        &mut self,
        values: impl Stream<Item = i64> + Send + 'static,
    ) -> Result<Streaming<Number>, Status> {
        self.ready().await;
        let path = PathAndQuery::from_static(ECHO);
        let values = Request::new(values.map(Number::of));
        let response = self
            .0
            .streaming(values, path, ProstCodec::default())
            .await?;
        Ok(response.into_inner())
    }

    async fn ready(&mut self) {
        self.0.ready().await.expect("a connection");
    }
}

impl Number {
    fn of(value: i64) -> Self {
        Self { value }
    }
}

/// Serves one connection without TLS, until the connection ends for any reason.
pub(crate) async fn serve(stream: TcpStream) {
    let service = service_fn(answer);
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

async fn answer(
    request: http::Request<Incoming>,
) -> Result<http::Response<tonic::body::Body>, Infallible> {
    let mut grpc = tonic::server::Grpc::new(ProstCodec::<Number, Number>::default());
    Ok(match request.uri().path() {
        DOUBLE => grpc.unary(tower::service_fn(double), request).await,
        COUNT => {
            grpc.server_streaming(tower::service_fn(count), request)
                .await
        }
        SUM => grpc.client_streaming(tower::service_fn(sum), request).await,
        ECHO => grpc.streaming(tower::service_fn(echo), request).await,
        other => Status::unimplemented(other).into_http(),
    })
}

async fn double(request: Request<Number>) -> Result<Response<Number>, Status> {
    let (metadata, _extensions, number) = request.into_parts();
    if number.value < 0 {
        return Err(Status::out_of_range("below 0"));
    }
    let mut response = Response::new(Number {
        value: number.value * 2,
    });
    if let Some(given) = metadata.get("x-given") {
        response.metadata_mut().insert("x-returned", given.clone());
    }
    Ok(response)
}

type Numbers = stream::BoxStream<'static, Result<Number, Status>>;

async fn count(request: Request<Number>) -> Result<Response<Numbers>, Status> {
    let numbers = (1..=request.into_inner().value).map(|value| Ok(Number { value }));
    Ok(Response::new(stream::iter(numbers).boxed()))
}

async fn sum(request: Request<Streaming<Number>>) -> Result<Response<Number>, Status> {
    let mut numbers = request.into_inner();
    let mut sum = Number { value: 0 };
    while let Some(number) = numbers.message().await? {
        sum.value += number.value;
    }
    Ok(Response::new(sum))
}

async fn echo(request: Request<Streaming<Number>>) -> Result<Response<Numbers>, Status> {
    Ok(Response::new(request.into_inner().boxed()))
}

const DOUBLE: &str = "/svc.testing.Numbers/Double";
const COUNT: &str = "/svc.testing.Numbers/Count";
const SUM: &str = "/svc.testing.Numbers/Sum";
const ECHO: &str = "/svc.testing.Numbers/Echo";
