//! The client side of HTTP `CONNECT` (RFC 9110 section 9.3.6).

use std::io;

use http1::{ANSWERS_TLS, Limits, Progress, ResponseHead, Slots, parse_response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{ProxyFault, ProxyLogin, ProxyRefusal};
use crate::HostPort;

/// Requests a connection to `target`, and reads the response. Afterwards the stream is connected to
/// the target.
pub(super) async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &HostPort,
    login: Option<&ProxyLogin>,
) -> Result<(), ProxyFault> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(login) = login {
        request.push_str("Proxy-Authorization: Basic ");
        request.push_str(&login.expose_basic());
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(ProxyFault::disconnected)?;
    stream.flush().await.map_err(ProxyFault::disconnected)?;
    let mut received = Vec::new();
    let mut slots = Box::new(Slots::new());
    loop {
        let read = stream.read_buf(&mut received).await;
        if read.map_err(ProxyFault::disconnected)? == 0 {
            return Err(ProxyFault::disconnected(
                io::ErrorKind::UnexpectedEof.into(),
            ));
        }
        // A successful response to CONNECT has no body, like one to HEAD.
        match parse_response(&received, &LIMITS, true, &mut slots) {
            Ok(Progress::Partial) => {}
            Ok(Progress::Complete { head, head_len }) => {
                check(&head, target, login)?;
                // The target sends nothing before the client does.
                if received.len() > head_len {
                    return Err(ProxyFault::Malformed("bytes follow its head"));
                }
                return Ok(());
            }
            Err(error) if error.reason == ANSWERS_TLS => {
                return Err(ProxyFault::Malformed("it uses TLS, which is not supported"));
            }
            Err(error) => return Err(ProxyFault::Malformed(error.reason)),
        }
    }
}

fn check(
    head: &ResponseHead<'_>,
    target: &HostPort,
    login: Option<&ProxyLogin>,
) -> Result<(), ProxyFault> {
    match head.status {
        // An interim response has no meaning for CONNECT.
        ..200 => Err(ProxyFault::Malformed("it is an interim response")),
        200..300 => Ok(()),
        407 => {
            let mut challenges = head.fields.iter();
            let offers_basic = challenges.any(|field| {
                field.name.is("proxy-authenticate") && names_basic(field.value.as_bytes())
            });
            Err(match (offers_basic, login) {
                (false, _) => ProxyFault::LoginUnsupported,
                (true, None) => ProxyFault::LoginRequired,
                (true, Some(_)) => ProxyFault::LoginRefused,
            })
        }
        // Some proxies, such as tinyproxy, send this status for a wrong login.
        401 if login.is_some() => Err(ProxyFault::LoginRefused),
        status => Err(ProxyFault::Refused {
            target: target.clone(),
            reason: ProxyRefusal::Status(status),
        }),
    }
}

/// True if one of the challenges of a field is `Basic`.
fn names_basic(challenges: &[u8]) -> bool {
    challenges.split(|byte| *byte == b',').any(|challenge| {
        let mut words = challenge.trim_ascii_start().split(u8::is_ascii_whitespace);
        let scheme = words.next();
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic"))
    })
}

/// Some fields of a few dozen bytes. An error page is not part of the head.
const LIMITS: Limits = Limits {
    head_bytes: 16 * 1024,
    target_bytes: 0,
    headers: 64,
};
