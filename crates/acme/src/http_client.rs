//! The HTTP client for the authority: bounded in time and bytes.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use reqwest::{Certificate, Client, Url, redirect};
use serde_json::json;

use crate::error::OrderError;
use crate::settings::WallClock;

/// The HTTP client for one authority. Clones share the connections and the requested delay.
#[derive(Clone)]
pub(crate) struct AuthorityClient {
    client: Client,
    /// Time before which the authority wants no further request, in seconds since 1970.
    retry_at: Arc<Mutex<Option<i64>>>,
    now: WallClock,
}

impl AuthorityClient {
    /// Creates a client for the directory at this address. `ca_file` replaces the authorities of
    /// the system.
    ///
    /// # Errors
    /// The file is unusable.
    pub(crate) fn new(
        directory: &str,
        ca_file: Option<&Path>,
        now: WallClock,
    ) -> Result<Self, OrderError> {
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            // The directory may be on loopback without TLS; everything else is https.
            .https_only(directory.starts_with("https://"))
            .redirect(redirect::Policy::none())
            // All settings come from the configuration, none from the environment.
            .no_proxy();
        if let Some(path) = ca_file {
            builder = builder.tls_certs_only(read_authorities(path)?);
        }
        Ok(Self {
            client: builder.build().map_err(OrderError::internal)?,
            retry_at: Arc::default(),
            now,
        })
    }

    /// The delay that the authority requested since the last call.
    pub(crate) fn take_retry_after(&self) -> Option<Duration> {
        let at = self.retry_at.lock().take()?;
        let seconds = at.saturating_sub((self.now)());
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move { this.send(request).await })
    }
}

impl AuthorityClient {
    async fn send(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(other_error)?.to_bytes();
        let url = Url::parse(&parts.uri.to_string()).map_err(other_error)?;
        // GET reads the directory or a suggested time of renewal. Orders use POST (RFC 8555 section
        // 6.3).
        let is_get = parts.method == Method::GET;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(body.into());
        let response = self.client.execute(request).await;
        let mut response = response.map_err(|error| Error::Other(describe(error).into()))?;
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = response.status();
        parts.headers = std::mem::take(response.headers_mut());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(other_error)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(Error::Str("the response is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        let now = (self.now)();
        self.store_delay(is_get, parts.status, &parts.headers, now);
        bound_delay(&mut parts.headers, is_get, now);
        let is_failure = parts.status.is_client_error() || parts.status.is_server_error();
        if is_failure && serde_json::from_slice::<instant_acme::Problem>(&body).is_err() {
            let text = format!("the response is {}", parts.status);
            let is_gone = [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&parts.status);
            if is_get || !is_gone {
                // A gateway in front of the authority sends no problem document.
                return Err(Error::Other(text.into()));
            }
            // Some authorities send no problem document for an order that they have deleted.
            body = json!({ "detail": text }).to_string().into_bytes();
        }
        let body = Box::new(Bytes::from(body));
        Ok(BytesResponse { parts, body })
    }

    /// Stores the delay that the authority requests with a refusal, or with an order that takes
    /// longer than the library polls. The library itself waits for the shorter delays of an order.
    fn store_delay(&self, is_get: bool, status: StatusCode, headers: &HeaderMap, now: i64) {
        let refusals = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        let value = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let Some(at) = value.and_then(|value| retry_at(value, now)) else {
            return;
        };
        let seconds = u64::try_from(at.saturating_sub(now)).unwrap_or_default();
        let is_long = !is_get && Duration::from_secs(seconds) > LONGEST_POLL;
        if is_long || refusals.contains(&status) {
            *self.retry_at.lock() = Some(at);
        }
    }
}

/// Replaces the requested delay by one that the library can use. The library adds the delay to the
/// current time, and this addition panics for the greatest numbers. With a suggested time of
/// renewal, the library requires a delay, although the authority may omit it (RFC 9773 section
/// 4.3).
fn bound_delay(headers: &mut HeaderMap, is_get: bool, now: i64) {
    let value = headers.remove(RETRY_AFTER);
    let value = value.as_ref().and_then(|value| value.to_str().ok());
    let at = value.and_then(|value| retry_at(value, now));
    let delay = at.map(|at| at.saturating_sub(now).clamp(0, MAX_DELAY));
    if let Some(delay) = delay.or(is_get.then_some(USUAL_DELAY)) {
        headers.insert(RETRY_AFTER, HeaderValue::from(delay));
    }
}

/// The time of a `Retry-After` field (RFC 9110 section 10.2.3), in seconds since 1970.
fn retry_at(value: &str, now: i64) -> Option<i64> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(now.saturating_add(seconds.into()));
    }
    let time = DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(time.as_second())
}

fn other_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}

/// The error with its causes: the library's first sentence alone does not name them.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn read_authorities(path: &Path) -> Result<Vec<Certificate>, OrderError> {
    let failed = |problem: String| OrderError::File {
        path: path.to_owned(),
        problem,
    };
    let pem = std::fs::read(path);
    let pem = pem.map_err(|error| failed(format!("cannot be read: {error}")))?;
    Certificate::from_pem_bundle(&pem)
        .ok()
        .filter(|authorities| !authorities.is_empty())
        .ok_or_else(|| failed("contains no certificates in PEM".to_owned()))
}

/// Time for which an attempt polls an order. Public authorities validate and sign within seconds;
/// the next attempt continues an order that takes longer.
pub(crate) const LONGEST_POLL: Duration = Duration::from_mins(2);

/// The longest delay that the library receives: a day, in seconds.
const MAX_DELAY: i64 = 24 * 3600;

/// Delay until the next request for a suggested time of renewal, in seconds, if the authority
/// requests none (RFC 9773 section 4.3.3).
const USUAL_DELAY: i64 = 6 * 3600;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An authority signs while the request waits, with a slow hardware module at worst.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// A chain with long certificates has 20 KiB.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn the_library_receives_only_delays_that_it_can_add_to_the_time() {
        let now = 1_800_000_000;
        for (value, is_get, expected) in [
            (Some("120"), false, Some("120")),
            (Some("18446744073709551615"), false, None),
            (Some("18446744073709551615"), true, Some("21600")),
            (Some("4000000000"), true, Some("86400")),
            (Some("Fri, 15 Jan 2027 08:05:00 GMT"), true, Some("300")),
            (Some("Fri, 15 Jan 2027 07:00:00 GMT"), true, Some("0")),
            (Some("soon"), false, None),
            (None, false, None),
            (None, true, Some("21600")),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            }
            bound_delay(&mut headers, is_get, now);
            let delay = headers
                .get(RETRY_AFTER)
                .map(|delay| delay.to_str().unwrap());
            assert_eq!(delay, expected, "{value:?}");
        }
    }

    #[test]
    fn the_next_attempt_respects_refusals_and_long_orders() {
        let now: WallClock = Arc::new(|| 1_800_000_000);
        let client = AuthorityClient::new("http://127.0.0.1:1/", None, now).unwrap();
        for (is_get, status, value, expected) in [
            (false, StatusCode::TOO_MANY_REQUESTS, "60", Some(60)),
            (true, StatusCode::SERVICE_UNAVAILABLE, "60", Some(60)),
            (false, StatusCode::OK, "60", None),
            (false, StatusCode::OK, "7200", Some(7200)),
            (true, StatusCode::OK, "7200", None),
            (false, StatusCode::TOO_MANY_REQUESTS, "soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            client.store_delay(is_get, status, &headers, 1_800_000_000);
            let delay = client.take_retry_after();
            let expected = expected.map(Duration::from_secs);
            assert_eq!(delay, expected, "{is_get} {status} {value}");
        }
    }

    /// The library's view of a response in HTTP/1.1 to a request without a body.
    async fn exchange(method: Method, bytes: &[u8]) -> Result<BytesResponse, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            // The client may close the connection before the end.
            stream.write_all(bytes).await.ok();
        };
        let directory = format!("http://{address}/");
        let now: WallClock = Arc::new(|| 0_i64);
        let client = AuthorityClient::new(&directory, None, now).unwrap();
        let request = Request::builder().method(method).uri(directory);
        let request = request.body(BodyWrapper::default()).unwrap();
        let ((), response) = tokio::join!(server, client.request(request));
        response
    }

    #[tokio::test]
    async fn a_long_response_of_an_authority_is_an_error() {
        let mut bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
        bytes.resize(bytes.len() + MAX_RESPONSE_BYTES + 1, b'x');
        let error = exchange(Method::GET, &bytes).await.err().unwrap();
        let text = error.to_string();
        assert!(text.contains("the response is too long"), "{text}");
    }

    #[tokio::test]
    async fn a_missing_order_is_a_refusal_also_without_a_problem_document() {
        let response = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let missing = response("404 Not Found");
        let mut answer = exchange(Method::POST, missing.as_bytes()).await.unwrap();
        let body = answer.body.into_bytes().await.unwrap();
        let problem: instant_acme::Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.detail.unwrap(), "the response is 404 Not Found");
        let gateway = response("502 Bad Gateway");
        for (method, response) in [(Method::GET, &missing), (Method::POST, &gateway)] {
            let answer = exchange(method, response.as_bytes()).await;
            assert!(answer.is_err(), "{response}");
        }
    }

    #[test]
    fn both_forms_of_a_requested_delay_are_read() {
        let now = 1_800_000_000;
        for (value, expected) in [
            ("120", Some(now + 120)),
            (" 0 ", Some(now)),
            ("Fri, 15 Jan 2027 08:05:00 GMT", Some(1_800_000_300)),
            ("-1", None),
            ("soon", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(retry_at(value, now), expected, "{value}");
        }
    }
}
