//! The event stream as frames of a WebSocket (RFC 6455).

use futures_util::StreamExt;
use http::{HeaderValue, header};
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error, Message, client::IntoClientRequest, error::ProtocolError, protocol::WebSocketConfig,
    },
};
use transport::TlsStream;

use super::{
    ApiError, HEAD_TIMEOUT, Problem,
    events::{MAX_EVENT, SILENCE},
};
use crate::{ConnectError, Token, error::Step};

/// An open WebSocket of events.
#[derive(Debug)]
pub(super) struct Socket {
    stream: WebSocketStream<TlsStream>,
    reason: Option<String>,
}

/// Opens the WebSocket at `url` over a connection to its engine.
pub(super) async fn open(
    url: &str,
    token: &Token,
    agent: &str,
    stream: TlsStream,
) -> Result<Socket, ApiError> {
    let mut request = url.into_client_request().map_err(failed)?;
    let bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()))
        .map_err(|_invalid| ApiError::Unexpected("the token cannot be sent".to_owned()))?;
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    if let Ok(agent) = HeaderValue::try_from(agent) {
        request.headers_mut().insert(header::USER_AGENT, agent);
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_EVENT))
        .max_frame_size(Some(MAX_EVENT));
    let opening = client_async_with_config(request, stream, Some(config));
    let (stream, _response) = timeout(HEAD_TIMEOUT, opening)
        .await
        .map_err(|_elapsed| ConnectError::TimedOut(Step::Exchange))?
        .map_err(failed)?;
    Ok(Socket {
        stream,
        reason: None,
    })
}

impl Socket {
    /// The text of the next event; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<String>, ApiError> {
        loop {
            // Pings of the engine count as signs of life; the library responds to them.
            let message = timeout(SILENCE, self.stream.next())
                .await
                .map_err(|_elapsed| ConnectError::TimedOut(Step::Exchange))?;
            match message {
                Some(Ok(Message::Text(text))) => return Ok(Some(text.to_string())),
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| frame.reason.to_string());
                    self.reason = reason.filter(|reason| !reason.is_empty());
                }
                Some(Ok(_)) => {}
                None | Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => {
                    return Ok(None);
                }
                Some(Err(error)) => return Err(failed(error)),
            }
        }
    }

    /// The engine's reason for closing.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// A refusal by the engine is an ordinary HTTP response.
fn failed(error: Error) -> ApiError {
    match error {
        Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            ApiError::Refused(Problem::parse(response.status().as_u16(), body))
        }
        Error::Io(source) => ConnectError::network(Step::Exchange, source).into(),
        // A lost connection ends without a close frame.
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            let ended = std::io::ErrorKind::UnexpectedEof.into();
            ConnectError::network(Step::Exchange, ended).into()
        }
        other => ApiError::Unexpected(other.to_string()),
    }
}
