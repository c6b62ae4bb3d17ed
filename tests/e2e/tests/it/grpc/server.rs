use std::convert::Infallible;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Number;

/// A gRPC server over HTTP/2 without TLS. It stops with the test's runtime.
pub(super) struct Server {
    address: SocketAddr,
    /// Messages of the one call of `Count`. Closed when the call is over.
    pub(super) numbers: mpsc::Sender<Result<i64, Code>>,
    /// Events of calls of `Hang`.
    pub(super) seen: mpsc::Receiver<CallEvent>,
}

/// An event of a call of `Hang`.
#[derive(Debug, PartialEq)]
pub(super) enum CallEvent {
    Begun {
        /// `grpc-timeout`.
        timeout: Option<String>,
    },
    Cancelled,
}

impl Server {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (numbers, counted) = mpsc::channel(1);
        let (sender, seen) = mpsc::channel(4);
        let calls = Calls {
            numbers: Arc::new(Mutex::new(Some(counted))),
            seen: sender,
        };
        tokio::spawn(async move {
            while let Ok((stream, _peer)) = listener.accept().await {
                let calls = calls.clone();
                let service = service_fn(move |request| {
                    let calls = calls.clone();
                    async move { Ok::<_, Infallible>(calls.answer(request).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Ok(Self {
            address,
            numbers,
            seen,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the call of `Count` normally.
    pub(super) fn end_numbers(&mut self) {
        (self.numbers, _) = mpsc::channel(1);
    }
}

/// State that the calls share.
#[derive(Clone)]
struct Calls {
    numbers: Arc<Mutex<Option<CountStream>>>,
    seen: mpsc::Sender<CallEvent>,
}

type CountStream = mpsc::Receiver<Result<i64, Code>>;
type GrpcResult<T> = Result<Response<T>, Status>;
type Numbers = BoxStream<'static, Result<Number, Status>>;

impl Calls {
    async fn answer(self, request: http::Request<Incoming>) -> http::Response<tonic::body::Body> {
        let mut grpc = tonic::server::Grpc::new(ProstCodec::<Number, Number>::default());
        match request.uri().path() {
            DOUBLE => grpc.unary(tower::service_fn(double), request).await,
            HANG => {
                let hang = tower::service_fn(|request| self.clone().hang(request));
                grpc.unary(hang, request).await
            }
            COUNT => {
                let count = tower::service_fn(|request| self.clone().count(request));
                grpc.server_streaming(count, request).await
            }
            SUM => grpc.client_streaming(tower::service_fn(sum), request).await,
            ECHO => grpc.streaming(tower::service_fn(echo), request).await,
            other => Status::unimplemented(other).into_http(),
        }
    }

    /// Sends the test's messages, and fails if the test asks for it.
    async fn count(self, _request: Request<Number>) -> GrpcResult<Numbers> {
        let numbers = self.numbers.lock().await.take();
        let numbers = numbers.ok_or_else(|| Status::unavailable("once for each test"))?;
        let numbers = ReceiverStream::new(numbers).map(|number| match number {
            Ok(value) => Ok(Number { value }),
            Err(code) => {
                let mut status = Status::new(code, "as the test wants it");
                let last = tonic::metadata::MetadataValue::from_static("said");
                status.metadata_mut().insert("x-last", last);
                Err(status)
            }
        });
        Ok(Response::new(numbers.boxed()))
    }

    /// Never answers.
    async fn hang(self, request: Request<Number>) -> GrpcResult<Number> {
        let timeout = request.metadata().get("grpc-timeout");
        let timeout = timeout.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        // The channel has capacity, or the test is over.
        self.seen.try_send(CallEvent::Begun { timeout }).ok();
        let _told = DropReporter(self.seen);
        pending().await
    }
}

/// Reports that the call was dropped, which is its only end.
struct DropReporter(mpsc::Sender<CallEvent>);

impl Drop for DropReporter {
    fn drop(&mut self) {
        // As above.
        self.0.try_send(CallEvent::Cancelled).ok();
    }
}

async fn double(request: Request<Number>) -> GrpcResult<Number> {
    let (metadata, _extensions, Number { value }) = request.into_parts();
    if value < 0 {
        let details = vec![0, 1, 2, 255].into();
        return Err(Status::with_details(
            Code::OutOfRange,
            "below 0: ünfit",
            details,
        ));
    }
    let mut response = Response::new(Number { value: value * 2 });
    if let Some(given) = metadata.get("x-given") {
        response.metadata_mut().insert("x-given", given.clone());
    }
    if let Some(given) = metadata.get_bin("x-given-bin") {
        response
            .metadata_mut()
            .insert_bin("x-given-bin", given.clone());
    }
    Ok(response)
}

async fn sum(request: Request<Streaming<Number>>) -> GrpcResult<Number> {
    let mut numbers = request.into_inner();
    let mut sum = Number { value: 0 };
    while let Some(number) = numbers.message().await? {
        sum.value += number.value;
    }
    Ok(Response::new(sum))
}

async fn echo(request: Request<Streaming<Number>>) -> GrpcResult<Numbers> {
    Ok(Response::new(request.into_inner().boxed()))
}

pub(super) const DOUBLE: &str = "/e2e.Numbers/Double";
pub(super) const HANG: &str = "/e2e.Numbers/Hang";
pub(super) const COUNT: &str = "/e2e.Numbers/Count";
pub(super) const SUM: &str = "/e2e.Numbers/Sum";
pub(super) const ECHO: &str = "/e2e.Numbers/Echo";
