//! HTTP before a WebSocket: access checks and responses.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use zeroize::Zeroizing;

use super::carrier::{Carrier, Io};
use super::session::Session;
use super::{SHUTTING_DOWN, ServerState, files};

/// Token that clients must present if no other component authenticates them: `Authorization: Bearer
/// …`.
pub struct AuthToken(Zeroizing<String>);

impl AuthToken {
    /// A token without surrounding white space; `None` if it is empty.
    pub fn new(token: &str) -> Option<Self> {
        let token = token.trim();
        (!token.is_empty()).then(|| Self(Zeroizing::new(token.to_owned())))
    }

    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(first), None) = (given.next(), given.next()) else {
            return false;
        };
        let shown = first.as_bytes().split_at_checked(BEARER.len());
        shown.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(BEARER)
                && bool::from(token.trim_ascii().ct_eq(self.0.as_bytes()))
        })
    }
}

impl fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthToken(…)")
    }
}

/// Web pages whose scripts may open a terminal. Programs other than browsers state no page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// All pages, because another component has checked them.
    Any,
    /// These pages: a whole origin (`https://example.com`) or a host. If a token is required, pages
    /// of the requested address are also allowed.
    These(Vec<String>),
    /// No pages.
    #[default]
    None,
}

impl Origins {
    fn allow(&self, headers: &HeaderMap, has_token: bool) -> bool {
        let mut given = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = given.next() else {
            return true;
        };
        let these = match self {
            Self::Any => return true,
            Self::None => return false,
            Self::These(these) => these,
        };
        let (Ok(origin), None) = (origin.to_str(), given.next()) else {
            return false;
        };
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let is_same = has_token && authority.is_some() && authority == host;
        let without_port = authority.map(|authority| {
            let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
            if port.bytes().all(|byte| byte.is_ascii_digit()) {
                host
            } else {
                authority
            }
        });
        is_same
            || these.iter().any(|allowed| {
                allowed == "*"
                    || allowed.eq_ignore_ascii_case(origin)
                    || authority.is_some_and(|it| allowed.eq_ignore_ascii_case(it))
                    || without_port.is_some_and(|it| allowed.eq_ignore_ascii_case(it))
            })
    }
}

/// Body of all responses.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Serves one connection, and the session that it may be upgraded to.
pub(crate) async fn serve(
    shared: Arc<ServerState>,
    io: Io,
    permit: OwnedSemaphorePermit,
    from: Option<IpAddr>,
) {
    let upgrade = Arc::new(Mutex::new(None));
    let service = {
        let (shared, upgrade) = (Arc::clone(&shared), Arc::clone(&upgrade));
        service_fn(move |request| {
            let (shared, upgrade) = (Arc::clone(&shared), Arc::clone(&upgrade));
            async move { Ok::<_, Infallible>(answer(&shared, &upgrade, request).await) }
        })
    };
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection.with_upgrades());
    let mut is_draining = false;
    loop {
        tokio::select! {
            // The client has received the error as well.
            _ended = connection.as_mut() => break,
            () = shared.drain.cancelled(), if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = shared.kill.cancelled() => return,
        }
    }
    let upgrade: Option<Upgrade> = upgrade.lock().take();
    let Some(Upgrade { upgrade, account }) = upgrade else {
        return;
    };
    let Ok(upgraded) = upgrade.await else { return };
    let carrier = Carrier::websocket(Box::new(TokioIo::new(upgraded)), permit).await;
    let session = Session::new(shared, carrier, from);
    session.of_account(account).run().await;
}

/// A request that is upgraded to a session.
struct Upgrade {
    upgrade: OnUpgrade,
    account: Option<String>,
}

/// The account that an engine has authenticated. A client that connects without an engine can send
/// any account, but this can only keep it from resuming a session.
fn account(headers: &HeaderMap) -> Option<String> {
    let mut given = headers.get_all(ACCOUNT).iter();
    let (Some(account), None) = (given.next(), given.next()) else {
        return None;
    };
    account.to_str().ok().map(str::to_owned)
}

async fn answer(
    shared: &ServerState,
    upgrade: &Mutex<Option<Upgrade>>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let web = &shared.web;
    if let Some(token) = &web.token
        && !token.is_shown(request.headers())
    {
        let mut refused = text(StatusCode::UNAUTHORIZED, "a token is required");
        let ask = HeaderValue::from_static("Bearer");
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
        return refused;
    }
    if !web.origins.allow(request.headers(), web.token.is_some()) {
        return text(
            StatusCode::FORBIDDEN,
            "pages of this origin are not allowed",
        );
    }
    if shared.drain.is_cancelled() {
        return text(StatusCode::SERVICE_UNAVAILABLE, SHUTTING_DOWN);
    }
    if let Some(files) = &web.files
        && files::serves(request.uri().path())
    {
        return files.answer(request).await;
    }
    let Some(key) = websocket_key(&request) else {
        let mut refused = text(StatusCode::UPGRADE_REQUIRED, "a WebSocket is expected here");
        let headers = refused.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        );
        return refused;
    };
    *upgrade.lock() = Some(Upgrade {
        account: account(request.headers()),
        upgrade: hyper::upgrade::on(&mut request),
    });
    let mut switching = Response::new(empty());
    *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = switching.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
    switching
}

/// The response key of a WebSocket handshake (RFC 6455 section 4.2.1); `None` for other
/// requests.
fn websocket_key<B>(request: &Request<B>) -> Option<HeaderValue> {
    let headers = request.headers();
    let lists = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|value| value.trim().eq_ignore_ascii_case(wanted))
    };
    let is_upgrade_request = request.method() == Method::GET
        && request.version() == http::Version::HTTP_11
        && lists(header::CONNECTION, "upgrade")
        && lists(header::UPGRADE, "websocket")
        && lists(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    if !is_upgrade_request {
        return None;
    }
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

/// A response with a text.
pub(crate) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn empty() -> Body {
    let nothing = http_body_util::Empty::new();
    nothing.map_err(|never| match never {}).boxed_unsync()
}

const BEARER: &[u8] = b"Bearer ";

/// Header in which the edge of an engine sends the visitor's account; the edge removes it from
/// visitors' requests.
const ACCOUNT: &str = "svc-user-id";

/// Time for a request to arrive, and time for which a connection may wait for its next request: as
/// in the edge.
const HEAD_DEADLINE: Duration = Duration::from_mins(1);

/// Maximum size of a request head: room for the cookies of any page.
const MAX_HEAD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse::<HeaderValue>().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_token_is_accepted_once_and_complete() {
        let token = AuthToken::new(" secret\n").unwrap();
        assert!(AuthToken::new(" \n").is_none());
        for (value, is_shown) in [
            ("Bearer secret", true),
            ("bearer secret ", true),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer", false),
            ("Basic secret", false),
            ("secret", false),
        ] {
            let headers = headers(&[("authorization", value)]);
            assert_eq!(token.is_shown(&headers), is_shown, "{value}");
        }
        assert!(!token.is_shown(&HeaderMap::new()));
        let mut twice = headers(&[("authorization", "Bearer secret")]);
        twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert!(!token.is_shown(&twice));
        assert_eq!(format!("{token:?}"), "AuthToken(…)");
    }

    #[test]
    fn only_allowed_pages_are_accepted() {
        let these = |list: &[&str]| Origins::These(list.iter().map(|&it| it.into()).collect());
        let of = |origin: &str| headers(&[("origin", origin), ("host", "127.0.0.1:8080")]);
        let page = of("https://evil.example");
        assert!(Origins::None.allow(&headers(&[("host", "x")]), false));
        assert!(Origins::Any.allow(&page, false));
        assert!(!Origins::None.allow(&page, true));
        assert!(!these(&[]).allow(&page, true));
        assert!(these(&["*"]).allow(&page, false));
        assert!(these(&["https://evil.example"]).allow(&page, false));
        assert!(these(&["evil.example"]).allow(&page, false));
        assert!(these(&["evil.example"]).allow(&of("https://evil.example:81"), false));
        assert!(!these(&["http://evil.example"]).allow(&page, false));
        assert!(!these(&["example"]).allow(&page, false));
        assert!(!these(&[]).allow(&of("null"), true));
        // The page that this address itself serves. It is only accepted with a token, because any
        // name can be made to resolve to this address.
        assert!(these(&[]).allow(&of("http://127.0.0.1:8080"), true));
        assert!(!these(&[]).allow(&of("http://127.0.0.1:8080"), false));
    }
}
