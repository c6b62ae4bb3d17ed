//! Reserved ports of projects.

use api::link;
use client::Properties;
use testing::{TestEngine, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::revoked::{endless, open, tcp_visitor};
use super::{A, B, TwoProjects};

/// A reserved port belongs to its project until it is released.
#[tokio::test]
async fn a_reserved_port_is_assigned_to_its_project_and_released() {
    let TwoProjects {
        platform,
        ann: token,
        ..
    } = TwoProjects::start().await;
    platform.add_project(B);
    platform.add_member("usr_ann", &[A, B]);
    let port = ports::lease();
    let reserve = |project: &mut link::Project| {
        project.addresses = vec![link::Address {
            id: "adr_1".to_owned(),
            port,
        }];
    };
    platform.add_project_with(A, reserve);
    let engine = TestEngine::managed(&platform).await;
    let service = endless().await;
    let asked = || Properties::tcp().port(port);
    let mut foreign = engine.agent_at(B, &token).await.open(asked());
    let refused = within("a refusal", foreign.online()).await.unwrap_err();
    assert!(refused.to_string().contains("not reserved"), "{refused:?}");
    let tunnel = open(engine.agent_at(A, &token).await, asked(), &service).await;
    assert_eq!(tunnel.online().properties.port, Some(port));
    // Another agent with the same identity takes the tunnel over, and no visitor is refused in
    // between.
    let taken = open(engine.agent_at(A, &token).await, asked(), &service).await;
    let mut visitor = tcp_visitor(&engine, &taken).await;
    visitor.write_all(b"x").await.unwrap();
    let mut ready = [0; 5];
    within("the service", visitor.read_exact(&mut ready))
        .await
        .unwrap();

    platform.add_project(A);
    within("the released port", async {
        while tokio::net::TcpStream::connect((engine.addr().ip(), port))
            .await
            .is_ok()
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
