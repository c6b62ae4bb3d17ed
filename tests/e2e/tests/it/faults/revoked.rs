//! A revocation at the platform closes connections at the engine.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::{Call, Curl, Download, ManagedPair, Service};

/// A revocation is effective within a second. The test allows ten on a busy machine, and the bench
/// measures the time.
#[test]
fn a_revocation_closes_open_connections() -> Result<()> {
    let managed = ManagedPair::on_sqlite()?;
    let (token, id) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&token)?;
    let service = Service::start()?;
    let agent = managed.forward(&service.address(), &["--http", "--token-auth"])?;
    let bearer = format!("Authorization: Bearer {token}");
    let open = |more: &[&str], head: &str| -> Result<(Call, Download)> {
        let url = agent.url("/open");
        let args = [&["--http1.1", "-H", bearer.as_str(), url.as_str()], more].concat();
        let mut download = Curl::new(&managed.engine).start(&args)?;
        let mut call = service.next()?;
        call.write(format!("HTTP/1.1 {head}\r\n\r\nbegun"))?;
        assert_eq!(download.read(5)?, b"begun");
        Ok((call, download))
    };
    let stream = open(&[], "200 OK\r\nConnection: close")?;
    let upgrade = [
        "-HConnection: Upgrade",
        "-HUpgrade: websocket",
        KEY,
        "-HSec-WebSocket-Version: 13",
    ];
    let websocket = open(&upgrade, ACCEPTED)?;

    managed.revoke(&managed.control, &id)?;
    let revoked = Instant::now();
    for (mut call, download) in [stream, websocket] {
        // curl reports a truncated body, or the end of a body without a length.
        assert!(download.rest().map_or(true, |rest| rest.is_empty()));
        assert!(call.is_closed(), "the service's connection stays open");
    }
    let took = revoked.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    Ok(())
}

/// The example of RFC 6455 section 1.3.
const KEY: &str = "-HSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &str = "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
