//! The client side of SOCKS5 (RFC 1928) with user name and password (RFC 1929).

use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{ProxyFault, ProxyLogin, ProxyRefusal};
use crate::HostPort;

/// Requests a connection to `target`, and reads the responses. Afterwards the stream is connected
/// to the target.
///
/// A name is sent as a name, so the proxy resolves it.
pub(super) async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &HostPort,
    login: Option<&ProxyLogin>,
) -> Result<(), ProxyFault> {
    let methods: &[u8] = match login {
        Some(_) => &[VERSION, 2, NO_LOGIN, LOGIN],
        None => &[VERSION, 1, NO_LOGIN],
    };
    send(stream, methods).await?;
    let [version, method] = receive(stream).await?;
    if version != VERSION {
        return Err(ProxyFault::Malformed("it is not SOCKS5"));
    }
    match (method, login) {
        (NO_LOGIN, _) => {}
        (LOGIN, Some(login)) => {
            send(stream, &login.expose_socks5()).await?;
            let [_version, status] = receive(stream).await?;
            if status != 0 {
                return Err(ProxyFault::LoginRefused);
            }
        }
        (NONE_ACCEPTABLE, None) => return Err(ProxyFault::LoginRequired),
        (NONE_ACCEPTABLE, Some(_)) => return Err(ProxyFault::LoginUnsupported),
        _ => {
            return Err(ProxyFault::Malformed(
                "it selects a method that was not offered",
            ));
        }
    }
    send(stream, &request(target)).await?;
    let [version, reply, _reserved, kind] = receive(stream).await?;
    if version != VERSION {
        return Err(ProxyFault::Malformed("its reply is not SOCKS5"));
    }
    if reply != 0 {
        return Err(ProxyFault::Refused {
            target: target.clone(),
            reason: ProxyRefusal::Reply(reply),
        });
    }
    // The address of the proxy's own socket, and its port.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            let [length] = receive(stream).await?;
            usize::from(length)
        }
        _ => {
            return Err(ProxyFault::Malformed(
                "its reply has an unknown kind of address",
            ));
        }
    };
    let mut address = [0; MAX_ADDRESS];
    let address = address.get_mut(..length + PORT).unwrap_or_default();
    let read = stream.read_exact(address).await;
    read.map(drop).map_err(ProxyFault::disconnected)
}

fn request(target: &HostPort) -> Vec<u8> {
    let mut request = vec![VERSION, CONNECT, 0];
    match target.host().parse() {
        Ok(IpAddr::V4(ip)) => {
            request.push(IPV4);
            request.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            request.push(IPV6);
            request.extend(ip.octets());
        }
        Err(_name) => {
            request.push(NAME);
            // A host has at most 253 bytes.
            request.push(u8::try_from(target.host().len()).unwrap_or(u8::MAX));
            request.extend(target.host().bytes());
        }
    }
    request.extend(target.port().to_be_bytes());
    request
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> Result<(), ProxyFault> {
    stream
        .write_all(message)
        .await
        .map_err(ProxyFault::disconnected)?;
    stream.flush().await.map_err(ProxyFault::disconnected)
}

async fn receive<const N: usize>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<[u8; N], ProxyFault> {
    let mut message = [0; N];
    let read = stream.read_exact(&mut message).await;
    read.map_err(ProxyFault::disconnected)?;
    Ok(message)
}

const VERSION: u8 = 5;

/// Methods of authentication.
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xFF;

/// The only command in use.
const CONNECT: u8 = 1;

/// Kinds of addresses.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Bytes of a port.
const PORT: usize = 2;

/// A name of 255 bytes and a port.
const MAX_ADDRESS: usize = 255 + PORT;
