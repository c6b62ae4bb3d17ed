//! Tokens that a provider renews.

use std::sync::atomic::{AtomicU32, Ordering};

use svc_client::{
    Agent, Config, ConnectError, RefusalKind, Token, TokenError, TokenFuture, TokenProvider,
    Tokens, dial,
};
use tokio::time::timeout;
use wire::{
    Error, Kind,
    message::{StreamOutcome, StreamRsp},
};

use super::fake::{FakeEngine, SOON, token};

/// Returns `token-1` until that is refused, then `token-2`, and so on.
#[derive(Default)]
struct RenewingProvider {
    refused: AtomicU32,
}

impl TokenProvider for RenewingProvider {
    fn token<'a>(&'a self, refused: Option<&'a Token>) -> TokenFuture<'a> {
        Box::pin(async move {
            let current = |count: u32| Token::new(&format!("token-{}", count + 1));
            let count = self.refused.load(Ordering::Relaxed);
            if refused == Some(&current(count)) {
                self.refused.store(count + 1, Ordering::Relaxed);
            }
            Ok(current(self.refused.load(Ordering::Relaxed)))
        })
    }
}

fn renewing(engine: &FakeEngine) -> Config {
    let mut config = engine.config();
    config.tokens = Tokens::from_provider(RenewingProvider::default());
    config
}

fn expired() -> Error {
    Error::unauthorized("the token has expired")
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_without_a_wait() {
    let engine = FakeEngine::start().await;
    let connecting = tokio::spawn(Agent::connect(renewing(&engine)));
    assert_eq!(engine.refuse_next(expired()).await, "token-1");
    let mut peer = engine.accept().await;
    let hello = peer.hello().await;
    assert_eq!(token(&hello), "token-2");
    peer.welcome_with(&hello, None).await;
    let agent = timeout(SOON, connecting).await.unwrap().unwrap().unwrap();

    // The same after a lost connection, because the token expired in the meantime.
    drop(peer);
    assert_eq!(engine.refuse_next(expired()).await, "token-2");
    let mut peer = engine.accept().await;
    let hello = peer.hello().await;
    assert_eq!(token(&hello), "token-3");
    peer.welcome_with(&hello, None).await;
    timeout(SOON, agent.online()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_renewed_token_that_is_refused_ends_the_agent() {
    let engine = FakeEngine::start().await;
    let connecting = tokio::spawn(Agent::connect(renewing(&engine)));
    for wanted in ["token-1", "token-2"] {
        assert_eq!(engine.refuse_next(expired()).await, wanted);
    }
    let error = timeout(SOON, connecting)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::Unauthorized);
}

#[tokio::test]
async fn a_dial_renews_its_token() {
    let engine = FakeEngine::start().await;
    let config = renewing(&engine);
    let dialled = tokio::spawn(async move { dial(&config, "db").await });
    let ok = StreamOutcome::StreamId("0123456789abcdef01234567".to_owned());
    for (wanted, outcome) in [
        ("token-1", StreamOutcome::Error(expired())),
        ("token-2", ok),
    ] {
        let mut peer = engine.accept().await;
        let Kind::StreamReq(asked) = peer.next().await else {
            panic!("not a dial")
        };
        assert_eq!(asked.client_details.unwrap().token.unwrap().value, wanted);
        let outcome = Some(outcome);
        peer.send(Kind::StreamRsp(StreamRsp { outcome })).await;
    }
    timeout(SOON, dialled).await.unwrap().unwrap().unwrap();
}

/// Fails this many times before it has a token.
struct FailingProvider {
    left: AtomicU32,
    is_lasting: bool,
}

impl TokenProvider for FailingProvider {
    fn token<'a>(&'a self, _refused: Option<&'a Token>) -> TokenFuture<'a> {
        Box::pin(async move {
            let less = |left: u32| left.checked_sub(1);
            match self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            {
                Ok(_) if self.is_lasting => Err(TokenError::lasting("signed out")),
                Ok(_) => Err(TokenError::transient("the sign-in service is away")),
                Err(_none) => Ok(Token::new("a.b.c")),
            }
        })
    }
}

#[tokio::test]
async fn a_provider_without_a_token_for_now_is_retried() {
    let engine = FakeEngine::start().await;
    let mut config = engine.config();
    let left = AtomicU32::new(2);
    config.tokens = Tokens::from_provider(FailingProvider {
        left,
        is_lasting: false,
    });
    let connecting = tokio::spawn(Agent::connect(config));
    let _channel = engine.control().await;
    timeout(SOON, connecting).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_provider_that_fails_permanently_ends_the_agent() {
    let engine = FakeEngine::start().await;
    let mut config = engine.config();
    let left = AtomicU32::new(1);
    config.tokens = Tokens::from_provider(FailingProvider {
        left,
        is_lasting: true,
    });
    let error = timeout(SOON, Agent::connect(config))
        .await
        .unwrap()
        .unwrap_err();
    let ConnectError::Token(error) = error else {
        panic!("{error:?}")
    };
    assert!(!error.is_transient());
}
