//! A WebSocket echo server.

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

/// Sends every message back until the peer closes.
#[expect(
    clippy::result_large_err,
    reason = "the shape of the library's callback"
)]
pub(super) async fn echo(stream: TcpStream) {
    let choose = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let offered = request.headers().get("sec-websocket-protocol");
        let first = offered.and_then(|offered| offered.to_str().ok()?.split(',').next());
        if let Some(first) = first {
            let value = first.trim().parse().expect("a field value");
            response
                .headers_mut()
                .insert("sec-websocket-protocol", value);
        }
        Ok(response)
    };
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, choose).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        let data = message.is_text() || message.is_binary();
        if data && socket.send(message).await.is_err() {
            return;
        }
    }
}
