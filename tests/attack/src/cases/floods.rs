//! Floods: frames that cost the sender little, and connections that do nothing.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::connection::read_available;
use crate::http2::{
    self, CONTINUATION, DATA, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use crate::target::{Target, request_fields};

pub(crate) fn run(target: &mut Target, budget: Duration, _: &mut fastrand::Rng) -> Result<()> {
    let host = target.open_host()?.to_owned();
    target.check()?;
    let (engine_before, agent_before) = target.memory()?;
    let descriptors_before = target.descriptors()?;
    let deadline = Instant::now() + budget;
    let mut floods = all(&host).into_iter().cycle();
    let count = all(&host).len();
    for done in 0.. {
        if done >= count && Instant::now() >= deadline {
            break;
        }
        let Some((name, bytes)) = floods.next() else {
            break;
        };
        let mut connection = target.connector.tls(&host, b"h2")?;
        // The engine may close during the write.
        connection.write_all(&bytes).ok();
        connection.sock.set_read_timeout(Some(ANSWER))?;
        read_available(&mut connection, 256 * 1024);
        drop(connection);
        target.check()?;
        let (engine, agent) = target.memory()?;
        ensure!(
            engine < engine_before + MAX_GROWTH && agent < agent_before + MAX_GROWTH,
            "{name}: memory grew from {engine_before} to {engine} at the engine, from {agent_before} \
             to {agent} at the agent"
        );
    }
    silent(target)?;
    let descriptors = target.descriptors()?;
    ensure!(
        descriptors < descriptors_before + SILENT,
        "{descriptors} descriptors are open after all clients left, {descriptors_before} before"
    );
    Ok(())
}

/// Connections that send nothing, while other visitors are served.
fn silent(target: &Target) -> Result<()> {
    let connections: Vec<_> = (0..SILENT)
        .map_while(|_| target.connector.tcp().ok())
        .collect();
    target.check()?;
    drop(connections);
    target.check()
}

fn all(host: &str) -> Vec<(&'static str, Vec<u8>)> {
    let block = http2::encode_fields(&request_fields("GET", "/bytes/100000", host));
    let begin = || {
        let mut out = Vec::new();
        http2::write_preface(&mut out, 65_535);
        out
    };
    let streams = |count: u32| (0..count).map(|index| 2 * index + 1);
    let mut rapid_reset = begin();
    for stream in streams(10_000) {
        http2::write_headers(&mut rapid_reset, stream, END_STREAM, &block);
        http2::write_frame(
            &mut rapid_reset,
            RST_STREAM,
            0,
            stream,
            &8_u32.to_be_bytes(),
        );
    }
    let mut continuation = begin();
    http2::write_frame(&mut continuation, HEADERS, END_STREAM, 1, &block);
    for _ in 0..2_000 {
        let part = http2::encode_fields(&[(b"x-part".to_vec(), vec![b'y'; 8_000])]);
        http2::write_frame(&mut continuation, CONTINUATION, 0, 1, &part);
    }
    let mut settings = begin();
    let mut pings = begin();
    for _ in 0..50_000 {
        http2::write_frame(&mut settings, SETTINGS, 0, 0, &[]);
        http2::write_frame(&mut pings, PING, 0, 0, &[0; 8]);
    }
    let mut empty_data = begin();
    http2::write_headers(&mut empty_data, 1, 0, &block);
    for _ in 0..50_000 {
        http2::write_frame(&mut empty_data, DATA, 0, 1, &[]);
    }
    let mut overflow = begin();
    http2::write_headers(&mut overflow, 1, END_STREAM, &block);
    for _ in 0..4 {
        let increment = 0x7fff_ffff_u32.to_be_bytes();
        http2::write_frame(&mut overflow, WINDOW_UPDATE, 0, 1, &increment);
        http2::write_frame(&mut overflow, WINDOW_UPDATE, 0, 0, &increment);
    }
    let mut many = begin();
    for stream in streams(20_000) {
        http2::write_headers(&mut many, stream, END_STREAM, &block);
    }
    // One large entry of the dynamic table, then references of one byte each (RFC 7541 section 6.1).
    let mut bomb_block = vec![0x40];
    let entry = http2::encode_fields(&[(b"x-bomb".to_vec(), vec![b'b'; 4_000])]);
    bomb_block.extend_from_slice(entry.get(1..).unwrap_or_default());
    bomb_block.extend(vec![0xbe; 16_000]);
    let mut bomb = begin();
    http2::write_headers(&mut bomb, 1, END_STREAM, &bomb_block);
    vec![
        ("rapid reset", rapid_reset),
        ("CONTINUATION", continuation),
        ("SETTINGS", settings),
        ("PING", pings),
        ("empty DATA", empty_data),
        ("window overflow", overflow),
        ("streams beyond the limit", many),
        ("HPACK table", bomb),
    ]
}

/// Connections without a byte; fewer than one source may have.
const SILENT: usize = 100;

/// The engine answers the end of a flood within this time or is still processing it. No case needs
/// the answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Buffers of one connection at both ends, and the allocator's overhead.
const MAX_GROWTH: u64 = 64 * 1024 * 1024;
