//! Address of the platform, and authentication of this process.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::link::{CHANGES, VERSION};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, Client, Method, RequestBuilder, StatusCode, Url, redirect};

/// A platform's address with the enrolment secret for it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    base: Url,
    token_file: PathBuf,
    client: Client,
}

/// Reason why an address, or its secret or certificates, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The secret must not be sent to this address.
    #[error("{0}")]
    Address(&'static str),
    /// The file of certificate authorities is unusable.
    #[error("{}: {problem}", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// The TLS library refuses its configuration.
    #[error("TLS cannot be set up")]
    Tls(#[source] reqwest::Error),
}

/// Reason why a platform cannot be used now.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The file contains no secret.
    #[error("{0}")]
    Token(String),
    /// The platform cannot be reached.
    #[error("the connection failed")]
    Unreachable(#[source] reqwest::Error),
    /// The platform does not accept the secret.
    #[error("the platform refuses the enrolment secret ({0})")]
    Refused(StatusCode),
    /// The platform is not ready, or the address belongs to another service.
    #[error("the platform responded with {0}")]
    Status(StatusCode),
}

impl EndpointError {
    /// The setting of [`ControlPlane`](crate::ControlPlane) that is wrong.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Authorities { .. } => "ca_file",
            Self::Address(_) | Self::Tls(_) => "url",
        }
    }
}

impl Endpoint {
    /// Checks an address: https, or http on loopback, and nothing after the host and port.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn check_address(address: &str) -> Result<(), &'static str> {
        base(address).map(drop)
    }

    /// Creates an endpoint from the address, the file of the enrolment secret, which is read for
    /// each connection, and the authorities for the platform's certificate (PEM; without them the
    /// system's).
    ///
    /// # Errors
    /// [`EndpointError`]
    pub fn new(
        address: &str,
        token_file: PathBuf,
        ca_file: Option<&Path>,
    ) -> Result<Self, EndpointError> {
        let base = base(address).map_err(EndpointError::Address)?;
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // The secret must not be sent to the target of a redirect.
            .redirect(redirect::Policy::none())
            // All settings come from the configuration, none from the environment.
            .no_proxy()
            // Operators of the platform see the version of each engine.
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = ca_file {
            builder = builder.tls_certs_only(authorities(path)?);
        }
        Ok(Self {
            base,
            token_file,
            client: builder.build().map_err(EndpointError::Tls)?,
        })
    }

    /// The address, which identifies the platform.
    pub fn address(&self) -> &str {
        self.base.as_str()
    }

    /// Connects to the platform once, and asks it if it accepts the secret. It opens no link.
    ///
    /// # Errors
    /// [`ProbeError`]
    pub async fn probe(&self) -> Result<(), ProbeError> {
        let request = self
            .request(Method::HEAD, CHANGES)
            .map_err(ProbeError::Token)?;
        let response = request.timeout(PROBE_TIMEOUT).send().await;
        let response = response.map_err(|error| ProbeError::Unreachable(error.without_url()))?;
        match response.status() {
            StatusCode::OK => Ok(()),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(ProbeError::Refused(status))
            }
            status => Err(ProbeError::Status(status)),
        }
    }

    /// A request to this path, with the current secret of the file.
    ///
    /// # Errors
    /// A sentence for the operator: the file contains no secret.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, String> {
        let bearer = bearer(&self.token_file)?;
        let mut url = self.base.clone();
        url.set_path(path);
        Ok(self
            .client
            .request(method, url)
            .header(AUTHORIZATION, bearer)
            .header(LINK_VERSION, VERSION))
    }
}

/// Checks that the file contains a secret now.
///
/// # Errors
/// A sentence for the operator.
pub fn check_token(token_file: &Path) -> Result<(), String> {
    bearer(token_file).map(drop)
}

/// The header with the secret of the file.
fn bearer(token_file: &Path) -> Result<HeaderValue, String> {
    let refused = |problem: String| format!("{}: {problem}", token_file.display());
    let read = read_bounded(token_file, MAX_TOKEN_BYTES);
    let text = read.map_err(|error| refused(error.to_string()))?;
    let secret = text.trim_ascii();
    let bearer = [b"Bearer ", secret].concat();
    let mut bearer = HeaderValue::from_bytes(&bearer)
        .ok()
        .filter(|_| !secret.is_empty() && secret.iter().all(u8::is_ascii_graphic))
        .ok_or_else(|| refused("it does not contain a secret on a single line".to_owned()))?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

fn base(address: &str) -> Result<Url, &'static str> {
    let url = Url::parse(address).map_err(|_| "this is not an https address")?;
    let host = url.host_str().ok_or("this is not an https address")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address with a user name is not supported");
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("the address must end with the host or its port");
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(host) => Ok(url),
        "http" => Err("http is allowed only on loopback; use https"),
        _ => Err("this is not an https address"),
    }
}

fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || literal
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, EndpointError> {
    let failed = |problem: String| EndpointError::Authorities {
        path: path.to_owned(),
        problem,
    };
    let pem = read_bounded(path, MAX_CA_BYTES).map_err(|error| failed(error.to_string()))?;
    Certificate::from_pem_bundle(&pem)
        .ok()
        .filter(|authorities| !authorities.is_empty())
        .ok_or_else(|| failed("no certificates in PEM".to_owned()))
}

fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The header with [`VERSION`], and the field that a platform of another version names.
pub(crate) const LINK_VERSION: &str = "svc-link-version";

/// Time limit for TCP and TLS over a slow network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of [`Endpoint::probe`]: it connects, and the platform does not use its database.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// A secret has about 50 bytes.
const MAX_TOKEN_BYTES: u64 = 4096;
/// All authorities of a system have about 200 KiB.
const MAX_CA_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_sent_only_over_tls_or_loopback() {
        for good in [
            "https://platform.example",
            "https://platform.example:8443/",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "http://localhost",
        ] {
            assert_eq!(Endpoint::check_address(good), Ok(()), "{good}");
        }
        for bad in [
            "http://platform.example",
            "http://10.0.0.1",
            "http://localhost.example",
            "ftp://platform.example",
            "https://user@platform.example",
            "https://platform.example/path",
            "https://platform.example/?query",
            "platform.example",
            "",
        ] {
            assert!(Endpoint::check_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_secret_is_read_from_the_file_and_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let endpoint = Endpoint::new("http://127.0.0.1:1", file.clone(), None).unwrap();
        let request = |path| endpoint.request(Method::GET, path);
        assert!(request("/").is_err(), "there is no file");
        for empty in ["", " \n", "two\nlines", "two words", "\u{e9}"] {
            std::fs::write(&file, empty).unwrap();
            let refused = request("/").unwrap_err();
            assert!(!refused.contains("two"), "{refused}");
        }
        std::fs::write(&file, "first\n").unwrap();
        let built = request("/link").unwrap().build().unwrap();
        assert_eq!(built.headers()[AUTHORIZATION], "Bearer first");
        assert!(!format!("{built:?}").contains("first"));
        std::fs::write(&file, "second").unwrap();
        let built = request("/link").unwrap().build().unwrap();
        assert_eq!(built.headers()[AUTHORIZATION], "Bearer second");
    }
}
