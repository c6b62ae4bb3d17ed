//! The port of a TCP tunnel belongs to its holder alone.

use client::{Agent, Properties, Target, Token};
use serde_json::json;
use testing::{TestEngine, TestTunnel, Upstream};

/// Opens a tunnel of `user`, with the user's name, and returns its port.
async fn publish(engine: &TestEngine, user: &str, service: &Upstream) -> (TestTunnel, u16) {
    let mut config = engine.agent_config();
    config.tokens = Token::new(&engine.token(json!({"userId": user}))).into();
    let agent = Agent::connect(config).await.unwrap();
    let properties = Properties::tcp().named(user.to_owned());
    let target: Target = service.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, properties, target).await;
    let port = tunnel.online().properties.port.unwrap();
    (tunnel, port)
}

#[tokio::test]
async fn a_reassigned_port_is_not_shared_with_its_former_holder() {
    let ports = ports::lease_range(3);
    let range = format!("{}-{}", ports.start(), ports.end());
    let engine = TestEngine::start_with(&format!("tcp: {{port_range: '{range}'}}")).await;
    let service = Upstream::tcp().await;
    let (ann, anns) = publish(&engine, "ann", &service).await;
    ann.close().await;
    let (_bob, _) = publish(&engine, "bob", &service).await;
    let (carl, _) = publish(&engine, "carl", &service).await;
    let (_dave, daves) = publish(&engine, "dave", &service).await;
    assert_eq!(daves, anns, "the ports are assigned in turn");
    carl.close().await;
    let (_ann, again) = publish(&engine, "ann", &service).await;
    assert_ne!(again, daves, "visitors of one would reach the other");
}
