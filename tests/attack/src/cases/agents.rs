//! Agents that misuse the agent protocol.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::connection::read_available;
use crate::target::Target;

pub(crate) fn run(target: &mut Target, budget: Duration, random: &mut fastrand::Rng) -> Result<()> {
    let host = target.engine_host().to_owned();
    for bytes in known() {
        send(target, &host, &bytes)?;
    }
    target.check()?;
    let deadline = Instant::now() + budget;
    let mut round = 0_u32;
    while Instant::now() < deadline {
        let mut bytes = Vec::new();
        for _ in 0..random.usize(1..4) {
            let payload: Vec<u8> = (0..random.usize(..64)).map(|_| random.u8(..)).collect();
            bytes.extend(frame(&payload));
        }
        send(target, &host, &bytes)?;
        round += 1;
        if round.is_multiple_of(64) {
            target.check()?;
        }
    }
    Ok(())
}

/// Sends the bytes with both names of the protocol and reads until the engine closes.
fn send(target: &Target, host: &str, bytes: &[u8]) -> Result<()> {
    for alpn in [&b"svc/1"[..], b"rstrm/1"] {
        let mut connection = target.connector.tls(host, alpn)?;
        if connection.write_all(bytes).is_err() {
            continue;
        }
        connection.conn.send_close_notify();
        connection.flush().ok();
        connection.sock.shutdown(std::net::Shutdown::Write).ok();
        read_available(&mut connection, 64 * 1024);
    }
    Ok(())
}

/// A frame: a length of four bytes and a payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn known() -> Vec<Vec<u8>> {
    // Field 11 of a Message: a ProxyReq that is empty, one whose nested lengths are wrong, and one
    // with an unknown stream id.
    let proxy_request = [&[0x5a, 0x0c, 0x12, 0x0a][..], b"\x0a\x080123456"].concat();
    vec![
        Vec::new(),
        vec![0; 4],
        u32::MAX.to_be_bytes().to_vec(),
        65_536_u32.to_be_bytes().to_vec(),
        frame(&[0xff; 65_535]),
        frame(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        frame(&[0x0a, 0x00]),
        frame(&[0x5a, 0x00]),
        frame(&proxy_request),
        frame(&[0x6a, 0x00]),
        frame(&[0x7a, 0x00]).repeat(10_000),
        [frame(&[0x2a, 0x00]), frame(&[0x3a, 0x00])].concat(),
    ]
}
