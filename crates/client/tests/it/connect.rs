//! `Agent::connect`: errors that end it, and errors after which it retries.

use std::{num::NonZeroU32, time::Duration};

use svc_client::{Agent, CertificateFault, ConnectError, HostPort, RefusalKind, Trust};
use tokio::time::timeout;
use wire::Error;

use super::fake::{FakeEngine, SOON};

async fn ended(config: svc_client::Config) -> ConnectError {
    timeout(SOON, Agent::connect(config))
        .await
        .unwrap()
        .unwrap_err()
}

#[tokio::test]
async fn an_unknown_authority_ends_it() {
    let engine = FakeEngine::start().await;
    let other = FakeEngine::start().await;
    let config = engine.config().with_trust(other.config().trust);
    let (error, ()) = tokio::join!(ended(config), engine.accept_failing());
    let ConnectError::Certificate { fault, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*fault, CertificateFault::UnknownIssuer);
    assert!(error.is_lasting() && error.is_transient());
}

#[tokio::test]
async fn a_certificate_for_another_host_ends_it() {
    let engine = FakeEngine::start().await;
    let mut config = engine.config();
    config.engine = HostPort::new("other.localhost", config.engine.port()).unwrap();
    let (error, ()) = tokio::join!(ended(config), engine.accept_failing());
    let ConnectError::Certificate { fault, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(fault, CertificateFault::WrongHost);
}

#[tokio::test]
async fn a_peer_without_tls_ends_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = FakeEngine::start().await;
    let mut config = engine.config();
    let port = listener.local_addr().unwrap().port();
    config.engine = HostPort::new("engine.localhost", port).unwrap();
    let answers = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        stream
    });
    let error = ended(config).await;
    assert!(
        matches!(error, ConnectError::NotAnEngine { .. }),
        "{error:?}"
    );
    drop(answers.await.unwrap());
}

#[tokio::test]
async fn a_refused_token_ends_it() {
    let engine = FakeEngine::start().await;
    let refusal = engine.refuse_next(Error::unauthorized("the token has expired"));
    let (error, token) = tokio::join!(ended(engine.config()), refusal);
    assert_eq!(token, "a.b.c");
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::Unauthorized);
}

#[tokio::test]
async fn unreadable_authorities_end_it_before_anything_is_sent() {
    let engine = FakeEngine::start().await;
    let config = engine
        .config()
        .with_trust(Trust::CaFile("/nowhere/ca.pem".into()));
    assert!(matches!(ended(config).await, ConnectError::Trust(_)));
}

#[tokio::test]
async fn network_errors_are_retried() {
    let engine = FakeEngine::start().await;
    let connecting = tokio::spawn(Agent::connect(engine.config()));
    for _ in 0..3 {
        engine.drop_next().await;
    }
    engine
        .refuse_next(Error::service_unavailable("starting"))
        .await;
    let _channel = engine.control().await;
    timeout(SOON, connecting).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn attempts_have_a_limit_if_one_is_set() {
    let engine = FakeEngine::start().await;
    let two = NonZeroU32::new(2).unwrap();
    let connecting = tokio::spawn(ended(engine.config().with_connect_attempts(two)));
    for _ in 0..2 {
        engine.drop_next().await;
    }
    let error = connecting.await.unwrap();
    let ConnectError::ConnectAttempts {
        attempts, source, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(attempts, 2);
    assert!(
        matches!(*source, ConnectError::Network { .. }),
        "{source:?}"
    );
}

#[tokio::test]
async fn the_wait_has_a_limit_if_one_is_set() {
    // The kernel accepts its connections, and no process answers them.
    let engine = FakeEngine::start().await;
    let limit = Duration::from_millis(100);
    let error = ended(engine.config().with_connect_timeout(limit)).await;
    let ConnectError::ConnectTimeout {
        limit: told,
        source,
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(told, limit);
    assert!(source.is_none(), "{source:?}");
}

/// A connected agent survives errors that would end `connect`: a replaced certificate, or a captive
/// portal that answers for a while.
#[tokio::test]
async fn a_connected_agent_survives_an_untrusted_certificate() {
    let mut engine = FakeEngine::start().await;
    let other = FakeEngine::start().await;
    let connecting = tokio::spawn(Agent::connect(engine.config()));
    let channel = engine.control().await;
    let agent = timeout(SOON, connecting).await.unwrap().unwrap().unwrap();
    let own = engine.swap_certificate(&other);
    drop(channel);
    engine.accept_failing().await;
    engine.restore_certificate(own);
    let _channel = engine.control().await;
    timeout(SOON, agent.online()).await.unwrap().unwrap();
}
