//! The time that a tunnel requests for the first byte of a response. The tests in `breaking` include
//! one that is shorter than that of the engine.

use std::convert::Infallible;

use bytes::Bytes;
use client::properties::HttpVersion;
use client::{ConnectError, Properties, RefusalKind};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testing::{TestEngine, Upstream, within};
use tokio::sync::watch;

/// A service that counts its requests, and answers all of them when it is released.
async fn held(
    is_http2: bool,
    arrived: watch::Sender<u32>,
    released: watch::Sender<bool>,
) -> Upstream {
    Upstream::start(move |stream, _| {
        let (arrived, released) = (arrived.clone(), released.subscribe());
        async move {
            let service = service_fn(move |_: Request<Incoming>| {
                let mut released = released.clone();
                arrived.send_modify(|count| *count += 1);
                async move {
                    released.wait_for(|is_released| *is_released).await.ok();
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("well")))
                }
            });
            let stream = TokioIo::new(stream);
            if is_http2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                builder.serve_connection(stream, service).await.ok();
            } else {
                let builder = hyper::server::conn::http1::Builder::new();
                builder.serve_connection(stream, service).await.ok();
            }
        }
    })
    .await
}

/// The patient request starts first, and the engine's own time limit passes after that.
#[tokio::test]
async fn a_tunnel_may_wait_longer_than_the_engine() {
    let engine = TestEngine::start_with("timeouts: {stream_request_seconds: 1}").await;
    for is_http2 in [false, true] {
        let (arrived, mut arrivals) = watch::channel(0);
        let released = watch::Sender::new(false);
        let service = held(is_http2, arrived, released.clone()).await;
        let properties = || {
            let version = if is_http2 {
                HttpVersion::H2c
            } else {
                HttpVersion::Http11
            };
            Properties::http().http_version(version)
        };
        let patient = properties().time_to_first_byte_seconds(600);
        let patient = engine.publish_as(patient, service.addr()).await;
        assert_eq!(
            patient.online().properties.time_to_first_byte_seconds,
            Some(600)
        );
        let other = engine.publish_as(properties(), service.addr()).await;
        let (mut http1, mut http2) = (
            engine.visitor().http1(patient.hostname()).await,
            engine.visitor().h2(patient.hostname()).await,
        );
        let waiting = async {
            tokio::join!(
                http1.get("/", patient.hostname()),
                http2.get("/", patient.hostname())
            )
        };
        let until_the_engine_gives_up = async {
            within("both requests", arrivals.wait_for(|count| *count == 2))
                .await
                .unwrap();
            let host = other.hostname();
            let (mut http1, mut http2) = (
                engine.visitor().http1(host).await,
                engine.visitor().h2(host).await,
            );
            let (over_http1, over_http2) = tokio::join!(http1.get("/", host), http2.get("/", host));
            assert_eq!((over_http1.status, over_http2.status), (504, 504));
            released.send_replace(true);
        };
        let ((over_http1, over_http2), ()) = tokio::join!(waiting, until_the_engine_gives_up);
        assert_eq!((over_http1.status, over_http1.text()), (200, "well"));
        assert_eq!((over_http2.status, over_http2.text()), (200, "well"));
    }
}

/// The refusal names the limit, and the key that changes it.
#[tokio::test]
async fn a_time_above_the_limit_of_the_engine_is_refused() {
    let sections = "timeouts: {stream_request_seconds: 5, max_time_to_first_byte_seconds: 7}";
    let engine = TestEngine::start_with(sections).await;
    let agent = engine.agent().await;
    let http = |seconds| Properties::http().time_to_first_byte_seconds(seconds);
    let mut longest = agent.open(http(7));
    within("tunnel", longest.online()).await.unwrap();
    for (properties, reason) in [
        (
            http(8),
            "time_to_first_byte_seconds: 8 s is more than the 7 s that this engine allows \
             (`timeouts.max_time_to_first_byte_seconds`)",
        ),
        (
            http(0),
            "time_to_first_byte_seconds: it is 1 to 3600 seconds",
        ),
        (
            Properties::tls().time_to_first_byte_seconds(5),
            "time_to_first_byte_seconds: only http tunnels have this option: remove it, or set \
             protocol to http",
        ),
    ] {
        let mut tunnel = agent.open(properties);
        let closed = within("refusal", tunnel.online()).await.unwrap_err();
        let ConnectError::Refused(refusal) = closed else {
            panic!("{closed:?}")
        };
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        assert!(refusal.message.contains(reason), "{}", refusal.message);
    }
}
