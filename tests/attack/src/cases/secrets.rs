//! Credentials in requests: they reach neither the service nor a log.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::connection::read_available;
use crate::target::Target;

pub(crate) fn run(target: &mut Target, _: Duration, _: &mut fastrand::Rng) -> Result<()> {
    let host = target.protected_host()?.to_owned();
    let token = target.token(&json!({}));
    let signature = token.rsplit('.').next().unwrap_or_default().to_owned();
    let requests = [
        format!("GET /?svc.token={token} HTTP/1.1\r\nHost: {host}\r\n"),
        format!("GET /?svc%2Etoken={token} HTTP/1.1\r\nHost: {host}\r\n"),
        format!("GET /x;svc.token={token} HTTP/1.1\r\nHost: {host}\r\n"),
        format!("GET /?svc.token={token}&svc.token={token} HTTP/1.1\r\nHost: {host}\r\n"),
        format!("GET /?svc.token={token}%zz HTTP/1.1\r\nHost: {host}\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer\t{token}\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nReferer: https://x/?svc.token={token}\r\n"),
        format!(
            "GET /?svc.token={token} HTTP/1.1\r\nHost: {host}\r\nReferer: https://x/?a=b&svc.token={token}\r\n"
        ),
    ];
    for request in requests {
        exchange(
            target,
            &host,
            format!("{request}Connection: close\r\n\r\n").as_bytes(),
        )?;
    }
    // A byte that is not UTF-8 before the credential.
    let mut request = format!("GET /?svc.token={token} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    request.extend(b"Referer: https://x/\xff?svc.token=");
    request.extend(format!("{token}\r\nConnection: close\r\n\r\n").into_bytes());
    exchange(target, &host, &request)?;
    target.check()?;
    let logs = target.logs()?;
    let found = logs.split(|byte| *byte == b'\n').find(|line| {
        line.windows(signature.len())
            .any(|part| part == signature.as_bytes())
    });
    ensure!(
        found.is_none(),
        "a log has a credential: {}",
        String::from_utf8_lossy(found.unwrap_or_default())
    );
    Ok(())
}

fn exchange(target: &Target, host: &str, request: &[u8]) -> Result<()> {
    let mut connection = target.connector.tls(host, b"http/1.1")?;
    connection.write_all(request)?;
    read_available(&mut connection, 64 * 1024);
    Ok(())
}
