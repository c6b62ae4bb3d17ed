//! Streams to private tunnels.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use transport::TlsStream;
use wire::{Decoder, Kind, message::StreamOutcome};

use crate::{
    Config, ConnectError, Stream, Token,
    agent::{channel::encode, hello},
    connect::{Connector, bounded},
    error::Step,
};

/// Opens a stream to the private tunnel with this name or id, and waits until the tunnel's agent
/// has accepted it. A refusal is therefore reported before any byte is sent. There are no retries,
/// except one with a new token if the engine rejects the current one.
///
/// # Errors
/// [`ConnectError::Refused`] if there is no such tunnel or the token does not allow it; other
/// variants if the engine cannot be reached.
///
/// # Cancellation
/// Safe: dropping the future closes the connection, and the engine aborts the stream.
pub async fn dial(config: &Config, name_or_id: &str) -> Result<Stream, ConnectError> {
    let connector = new_connector(config)?;
    let token = config.tokens.token().await?;
    match dial_with(config, &connector, &token, name_or_id).await {
        Err(error) if error.is_unauthorized() => match config.tokens.replacement(&token).await? {
            Some(token) => dial_with(config, &connector, &token, name_or_id).await,
            None => Err(error),
        },
        result => result,
    }
}

async fn dial_with(
    config: &Config,
    connector: &Connector,
    token: &Token,
    name_or_id: &str,
) -> Result<Stream, ConnectError> {
    let mut stream = send_hello(connector, hello::dial(config, token, name_or_id, false)).await?;
    let answer = timeout(RESPONSE_TIMEOUT, read_response(&mut stream))
        .await
        .map_err(|_elapsed| ConnectError::TimedOut(Step::Hello))??;
    match answer {
        Some(Kind::StreamRsp(answer)) => match answer.outcome {
            Some(StreamOutcome::StreamId(id)) => Ok(Stream::new(Box::new(stream), id, None)),
            Some(StreamOutcome::Error(error)) => Err(hello::refused(&error)),
            None => Err(ConnectError::Protocol(
                "the answer to a dial is empty".to_owned(),
            )),
        },
        _ => Err(ConnectError::Protocol(
            "unexpected answer to a dial".to_owned(),
        )),
    }
}

/// As [`dial()`], but does not wait for the response: bytes can be sent immediately. A refusal ends
/// the stream early, so there is no retry with a new token.
///
/// # Errors
/// The reason why the engine cannot be reached.
///
/// # Cancellation
/// Safe: dropping the future closes the connection.
pub async fn dial_zero_rtt(config: &Config, name_or_id: &str) -> Result<Stream, ConnectError> {
    let connector = new_connector(config)?;
    let token = config.tokens.token().await?;
    let stream = send_hello(&connector, hello::dial(config, &token, name_or_id, true)).await?;
    Ok(Stream::new(Box::new(stream), String::new(), None))
}

fn new_connector(config: &Config) -> Result<Connector, ConnectError> {
    Connector::new(
        config.engine.clone(),
        &config.trust,
        &config.proxies,
        &[wire::handshake::ALPN_SVC],
    )
}

async fn send_hello(connector: &Connector, hello: Kind) -> Result<TlsStream, ConnectError> {
    let mut stream = connector.connect().await?;
    let mut frame = Vec::new();
    encode(hello, &mut frame)?;
    bounded(Step::Hello, WRITE_TIMEOUT, async {
        stream.write_all(&frame).await?;
        stream.flush().await
    })
    .await?;
    Ok(stream)
}

/// Reads only the response: the following bytes belong to the stream.
async fn read_response(stream: &mut TlsStream) -> Result<Option<Kind>, ConnectError> {
    let mut decoder = Decoder::new();
    loop {
        let next = decoder
            .next()
            .map_err(|e| ConnectError::Protocol(e.to_string()))?;
        if let Some(message) = next {
            return Ok(message.kind);
        }
        let missing = decoder
            .missing()
            .map_err(|e| ConnectError::Protocol(e.to_string()))?;
        let mut bytes = vec![0; missing];
        bounded(Step::Hello, RESPONSE_TIMEOUT, stream.read_exact(&mut bytes)).await?;
        decoder.push(&bytes);
    }
}

/// Time limit for sending the request: one small write into an empty socket buffer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the response: the engine asks the agent, and the agent connects to its service.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
