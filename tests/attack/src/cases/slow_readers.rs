//! Visitors that request much and read nothing.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::http2::{self, END_STREAM, HEADERS};
use crate::target::{Target, request_fields};

pub(crate) fn run(target: &mut Target, _: Duration, _: &mut fastrand::Rng) -> Result<()> {
    let host = target.open_host()?.to_owned();
    target.check()?;
    let (engine_before, agent_before) = target.memory()?;
    let mut readers = Vec::new();
    for _ in 0..CONNECTIONS {
        let block = http2::encode_fields(&request_fields("GET", "/bytes/1000000", &host));
        let mut out = Vec::new();
        // No byte of any response may be sent.
        http2::write_preface(&mut out, 0);
        for index in 0..STREAMS {
            http2::write_headers(&mut out, 2 * index + 1, END_STREAM, &block);
        }
        let mut connection = target.connector.tls(&host, b"h2")?;
        connection.write_all(&out)?;
        // Waits for the head of the first response, since the services have then started to answer.
        http2::read_until(&mut connection, |frame| frame.kind == HEADERS)?;
        readers.push(connection);
        target.check()?;
    }
    let (engine, agent) = target.memory()?;
    ensure!(
        engine < engine_before + MAX_BUFFERED + MAX_STREAMS && agent < agent_before + MAX_BUFFERED,
        "{CONNECTIONS} connections of {STREAMS} streams that do not read: memory grew from {engine_before} \
         to {engine} at the engine, from {agent_before} to {agent} at the agent"
    );
    drop(readers);
    Ok(())
}

/// As many as one household has. On one machine, the kernel buffers 600 KB for each of their streams
/// between the service, the agent and the engine, and resets connections from 2.2 GB on.
const CONNECTIONS: u32 = 12;

/// More than the engine allows on a connection. It refuses the rest.
const STREAMS: u32 = 250;

/// Default of `limits.max_buffered_bytes`: bytes that wait for readers (docs/security.md).
const MAX_BUFFERED: u64 = 256 * 1024 * 1024;

/// Other memory of the engine for all streams of this test, which `limits.max_streams` limits.
const MAX_STREAMS: u64 = CONNECTIONS as u64 * STREAMS as u64 * 48 * 1024;
