//! Tests of the agent with a scripted engine, over real sockets and real TLS.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where it fails"
)]

mod api;
mod channel;
mod connect;
mod dial;
mod examples;
mod fake;
mod moving;
mod streams;
mod tokens;

use svc_client::{Status, Tunnel};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use fake::SOON;

/// Waits until the tunnel is in a state.
async fn until(tunnel: &Tunnel, wanted: impl FnMut(&Status) -> bool) -> Status {
    let mut status = tunnel.status();
    timeout(SOON, status.wait_for(wanted))
        .await
        .unwrap()
        .unwrap()
        .clone()
}

/// A service that echoes a whole request. Returns its port.
async fn echo_service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                stream.read_to_end(&mut request).await.unwrap();
                stream.write_all(&request).await.unwrap();
            });
        }
    });
    port
}
