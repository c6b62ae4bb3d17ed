//! The network address of the caller.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use http::HeaderMap;
use http::request::Parts;
use ipnet::IpNet;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::{HandlerResult, Refusal};

/// The network address of the caller: the peer's, or the one that a trusted proxy reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIp(pub IpAddr);

impl FromRequestParts<Arc<App>> for ClientIp {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> HandlerResult<Self> {
        // The listener always adds the peer's address to the request.
        Self::of(parts, app).ok_or_else(|| Problem::internal().into())
    }
}

impl ClientIp {
    /// The address, if the listener has added the peer's address to the request.
    pub(crate) fn of(parts: &Parts, app: &App) -> Option<Self> {
        let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
        let trusted = &app.config.trusted_proxies;
        Some(Self(client_ip(peer.ip(), &parts.headers, trusted)))
    }
}

/// The rightmost address of `X-Forwarded-For` that is not a trusted proxy. An untrusted client may
/// have written everything to the left of it.
fn client_ip(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| {
        trusted
            .iter()
            .any(|network| network.contains(&address.to_canonical()))
    };
    let mut client = peer.to_canonical();
    let fields: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    // Parsed as bytes. A field that is not text must not be skipped, because the field before it
    // may be from an untrusted client.
    let hops = fields
        .iter()
        .rev()
        .flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b','));
    for hop in hops {
        if !is_trusted(&client) {
            break;
        }
        let hop = str::from_utf8(hop.trim_ascii()).unwrap_or_default();
        match hop.parse::<IpAddr>() {
            Ok(address) => client = address.to_canonical(),
            Err(_) => break,
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, fields: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for field in fields {
            let field = http::HeaderValue::from_bytes(field.as_bytes()).unwrap();
            headers.append("x-forwarded-for", field);
        }
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        client_ip(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_trusted() {
        assert_eq!(client("192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("::ffff:10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn an_address_from_an_untrusted_client_is_ignored() {
        assert_eq!(
            client("10.0.0.1", &["1.1.1.1, 198.51.100.7, 10.0.0.2"]),
            "198.51.100.7"
        );
        assert_eq!(
            client("10.0.0.1", &["1.1.1.1", "198.51.100.7"]),
            "198.51.100.7"
        );
        assert_eq!(client("10.0.0.1", &["1.1.1.1, nonsense"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "é"]), "10.0.0.1");
        assert_eq!(
            client("10.0.0.1", &["1.1.1.1", "é, 198.51.100.7"]),
            "198.51.100.7"
        );
    }
}
