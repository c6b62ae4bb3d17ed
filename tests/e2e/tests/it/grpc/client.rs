use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use e2e::{Svc, connector};
use futures_util::Stream;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{Number, server};

/// A client of the service, through the engine.
#[derive(Clone)]
pub(super) struct Client(tonic::client::Grpc<Channel>);

type GrpcResult<T> = Result<Response<T>, Status>;

impl Client {
    /// Connects to the published name.
    pub(super) async fn connect(svc: &Svc, hostname: &str) -> Result<Self> {
        let connector = connector(svc, &["h2"])?;
        let (_, port) = svc.address().rsplit_once(':').context("no port")?;
        let address = (Ipv4Addr::LOCALHOST, port.parse::<u16>()?);
        let name = ServerName::try_from(hostname.to_owned())?;
        let dial = tower::service_fn(move |_uri| {
            let (name, connector) = (name.clone(), connector.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                connector.connect(name, stream).await.map(TokioIo::new)
            }
        });
        let endpoint = Endpoint::from_shared(format!("https://{hostname}:{port}"))?;
        let channel = endpoint.connect_with_connector(dial).await?;
        Ok(Self(tonic::client::Grpc::new(channel)))
    }

    pub(super) async fn double(&mut self, request: Request<Number>) -> GrpcResult<Number> {
        self.unary(server::DOUBLE, request).await
    }

    pub(super) async fn hang(&mut self, request: Request<Number>) -> GrpcResult<Number> {
        self.unary(server::HANG, request).await
    }

    /// The same with its own client, for a task.
    pub(super) async fn hang_forever(mut self) -> GrpcResult<Number> {
        self.hang(Request::new(Number { value: 0 })).await
    }

    pub(super) async fn count(
        &mut self,
        request: Request<Number>,
    ) -> GrpcResult<Streaming<Number>> {
        self.ready().await?;
        let path = PathAndQuery::from_static(server::COUNT);
        let codec = ProstCodec::default();
        self.0.server_streaming(request, path, codec).await
    }

    pub(super) async fn sum<S>(&mut self, request: Request<S>) -> GrpcResult<Number>
    where
        S: Stream<Item = Number> + Send + 'static,
    {
        self.ready().await?;
        let path = PathAndQuery::from_static(server::SUM);
        let codec = ProstCodec::default();
        self.0.client_streaming(request, path, codec).await
    }

    pub(super) async fn echo<S>(&mut self, request: Request<S>) -> GrpcResult<Streaming<Number>>
    where
        S: Stream<Item = Number> + Send + 'static,
    {
        self.ready().await?;
        let path = PathAndQuery::from_static(server::ECHO);
        self.0.streaming(request, path, ProstCodec::default()).await
    }

    async fn unary(&mut self, path: &'static str, request: Request<Number>) -> GrpcResult<Number> {
        self.ready().await?;
        let path = PathAndQuery::from_static(path);
        self.0.unary(request, path, ProstCodec::default()).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.0.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))
    }
}
