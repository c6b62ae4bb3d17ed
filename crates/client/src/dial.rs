//! Streams to private tunnels.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use transport::TlsStream;
use wire::{Decoder, Kind, message::StreamOutcome};

use crate::{
    Config, ConnectError, Stream,
    agent::{channel::encode, hello},
    connect::{Connector, bounded},
    error::Step,
};

/// Opens a stream to the private tunnel with this name or id, and waits until the agent there has
/// it: a refusal is seen before a byte is sent.
pub async fn dial(config: &Config, name_or_id: &str) -> Result<Stream, ConnectError> {
    let mut stream = request(config, name_or_id, false).await?;
    let answer = timeout(ANSWER, answer(&mut stream))
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
            "the answer to a dial is something else".to_owned(),
        )),
    }
}

/// As [`dial()`], without waiting: the first bytes travel with the request. A refusal is an early
/// end of the stream.
pub async fn dial_zero_rtt(config: &Config, name_or_id: &str) -> Result<Stream, ConnectError> {
    let stream = request(config, name_or_id, true).await?;
    Ok(Stream::new(Box::new(stream), String::new(), None))
}

async fn request(
    config: &Config,
    name_or_id: &str,
    zero_rtt: bool,
) -> Result<TlsStream, ConnectError> {
    let connector = Connector::new(
        config.engine.clone(),
        &config.trust,
        &[wire::handshake::ALPN_SVC],
    )?;
    let mut stream = connector.connect().await?;
    let mut frame = Vec::new();
    encode(hello::dial(config, name_or_id, zero_rtt), &mut frame)?;
    bounded(Step::Hello, WRITE, async {
        stream.write_all(&frame).await?;
        stream.flush().await
    })
    .await?;
    Ok(stream)
}

/// Reads the one answer and not a byte more: what follows is the stream's.
async fn answer(stream: &mut TlsStream) -> Result<Option<Kind>, ConnectError> {
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
        bounded(Step::Hello, ANSWER, stream.read_exact(&mut bytes)).await?;
        decoder.push(&bytes);
    }
}

/// The request is one small write into an empty socket buffer.
const WRITE: Duration = Duration::from_secs(5);

/// The engine asks the agent, and that one its service: as long as both may take.
const ANSWER: Duration = Duration::from_secs(30);
