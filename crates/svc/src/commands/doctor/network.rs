//! Network checks, from resolving the engine's name to its first response.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use client::{
    Config, ConnectError, HostPort, Proxy, Trust,
    proxy::{DirectReason, ProxyFault, Route},
};
use http::{Request, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use rustls::{AlertDescription, CertificateError};
use tokio::{net::TcpStream, time::timeout};
use transport::{Socket, TlsStream};

use super::check::{Check, Report};
use crate::{
    commands::explain::certificate::{Certificate, RecordingVerifier},
    failure::{Failure, chain},
    output,
};

/// Runs each check. Returns true if the engine can be queried.
pub(super) async fn run_checks(
    config: &Config,
    limit: Duration,
    report: &mut Report,
) -> Result<bool, Failure> {
    let route = match EngineRoute::of(config) {
        Ok(route) => route,
        Err(failure) => return report.add(Check::failed(PROXY, &failure)),
    };
    let Some((route, socket)) = first_connection(config, route, limit, report).await? else {
        return Ok(false);
    };
    let recorder = match RecordingVerifier::new(ca_file(config).as_deref()) {
        Ok(recorder) => recorder,
        Err(failure) => return report.add(Check::failed("tls", &failure)),
    };
    let tls_result = handshake(&config.engine, &recorder, b"http/1.1", socket, limit).await;
    report.add(check_tls(&config.engine, &recorder, &tls_result, config))?;
    let Ok(stream) = tls_result else {
        return Ok(false);
    };
    report.add(check_agents(config, &recorder, &route, limit).await)?;
    report.add(check_clock(&config.engine, stream, limit).await)?;
    Ok(true)
}

/// The route of connections to the engine.
enum EngineRoute<'c> {
    /// Through a proxy, which resolves the name and connects.
    Proxy(&'c Proxy),
    /// To the addresses of the engine, with the reason why no proxy is used.
    Direct(DirectReason, Vec<SocketAddr>),
}

impl<'c> EngineRoute<'c> {
    fn of(config: &'c Config) -> Result<Self, Failure> {
        let route = config.proxies.route(&config.engine, true);
        match route.map_err(ConnectError::from)? {
            Route::Proxy(proxy) => Ok(Self::Proxy(proxy)),
            Route::Direct(reason) => Ok(Self::Direct(reason, Vec::new())),
        }
    }
}

/// Checks each step up to the first connection. `None` if one of them fails.
async fn first_connection<'c>(
    config: &Config,
    route: EngineRoute<'c>,
    limit: Duration,
    report: &mut Report,
) -> Result<Option<(EngineRoute<'c>, Socket)>, Failure> {
    match route {
        EngineRoute::Proxy(proxy) => {
            let (socket, check) = connect_through(proxy, &config.engine, limit).await;
            report.add(check)?;
            let Some(socket) = socket else {
                return Ok(None);
            };
            report.add(Check::skip("dns", "the proxy resolves the engine's name"))?;
            report.add(Check::skip("tcp", "the proxy connects to the engine"))?;
            Ok(Some((route, socket)))
        }
        EngineRoute::Direct(reason, _) => {
            report.add(Check::skip(PROXY, unused(reason)))?;
            let (addresses, check) = resolve(&config.engine, limit).await;
            if !report.add(check)? {
                return Ok(None);
            }
            let (socket, check) = connect(&addresses, limit).await;
            report.add(check)?;
            Ok(socket.map(|socket| (EngineRoute::Direct(reason, addresses), socket)))
        }
    }
}

fn unused(reason: DirectReason) -> &'static str {
    match reason {
        DirectReason::ThisMachine => "not used: the engine is on this machine",
        DirectReason::Exception => "not used: the engine is an exception in NO_PROXY",
        _ => "no proxy is configured",
    }
}

/// Connects to the engine through the proxy.
async fn connect_through(
    proxy: &Proxy,
    engine: &HostPort,
    limit: Duration,
) -> (Option<Socket>, Check) {
    let source = proxy.variable().unwrap_or("--proxy");
    let started = Instant::now();
    let fault = match timeout(limit, proxy.open(engine)).await {
        Ok(Ok(socket)) => {
            let took = millis(started);
            let message = format!("{proxy} ({source}) connects to {engine} in {took}");
            return (Some(socket), Check::pass(PROXY, message));
        }
        Ok(Err(fault)) => fault,
        Err(_elapsed) => ProxyFault::TimedOut,
    };
    let why = output::plain(&chain(&fault));
    let check = Check::fail(PROXY, format!("{proxy} ({source}): {why}"));
    let check = check.with_next_step(match fault {
        ProxyFault::LoginRequired | ProxyFault::LoginRefused | ProxyFault::LoginUnsupported => {
            "set HTTPS_PROXY or SVC_PROXY to http://USER:PASSWORD@HOST:PORT, with special \
             characters percent-encoded"
        }
        ProxyFault::Refused { .. } => {
            "the proxy must be able to reach the engine, and allow CONNECT to its port"
        }
        ProxyFault::Malformed(_) => {
            "is it the proxy's port, and is the scheme right (http:// or socks5://)?"
        }
        _ => "is the proxy running, and is its address right? `--proxy none` connects directly",
    });
    (None, check)
}

async fn resolve(engine: &HostPort, limit: Duration) -> (Vec<SocketAddr>, Check) {
    const NAME: &str = "dns";
    let host = engine.host();
    let started = Instant::now();
    let found = timeout(limit, engine.resolve()).await;
    let failed = |why: String| {
        let check = Check::fail(NAME, format!("{host} has no address: {why}")).with_next_step(
            "check the spelling of the name, and whether this machine can reach \
                             its DNS resolver",
        );
        (Vec::new(), check)
    };
    match found {
        Ok(Ok(addresses)) => {
            let shown: Vec<_> = addresses.iter().map(|a| a.ip().to_string()).collect();
            let message = format!("{host} is {} ({})", shown.join(", "), millis(started));
            (addresses, Check::pass(NAME, message))
        }
        Ok(Err(error)) => failed(error.to_string()),
        Err(_elapsed) => failed(format!("no answer in {limit:?}")),
    }
}

/// Connects to the first address that answers, in the same way as agents.
async fn connect(addresses: &[SocketAddr], limit: Duration) -> (Option<Socket>, Check) {
    const NAME: &str = "tcp";
    let mut missed = Vec::new();
    let mut refused = false;
    for address in addresses {
        let started = Instant::now();
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let reached = format!("{address} in {}", millis(started));
                let check = if missed.is_empty() {
                    Check::pass(NAME, reached)
                } else {
                    Check::warn(NAME, format!("{reached}, but not {}", missed.join(", ")))
                        .with_next_step(
                            "commands are slower because they try the address that \
                                         does not answer",
                        )
                };
                return (Some(Socket::new(stream, *address)), check);
            }
            Ok(Err(error)) => {
                refused |= error.kind() == io::ErrorKind::ConnectionRefused;
                missed.push(format!("{address} ({error})"));
            }
            Err(_elapsed) => missed.push(format!("{address} (no answer in {limit:?})")),
        }
    }
    let check = Check::fail(NAME, format!("cannot reach {}", missed.join(", ")));
    let check = if refused {
        check.with_next_step(
            "is the engine running, and is the port right? `svc up` starts one here",
        )
    } else {
        check.with_next_step("a firewall drops the connection, or the address is not the engine's")
    };
    (None, check)
}

async fn handshake(
    engine: &HostPort,
    recorder: &Arc<RecordingVerifier>,
    alpn: &[u8],
    socket: Socket,
    limit: Duration,
) -> io::Result<TlsStream> {
    let name = engine.server_name().map_err(io::Error::other)?;
    let mut config = recorder
        .client()
        .map_err(|failure| io::Error::other(failure.message().to_owned()))?;
    config.alpn_protocols = vec![alpn.to_vec()];
    timeout(limit, transport::connect(Arc::new(config), name, socket))
        .await
        .map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Checks that the certificate is trusted, and reports its contents.
fn check_tls(
    engine: &HostPort,
    recorder: &RecordingVerifier,
    tls_result: &io::Result<TlsStream>,
    config: &Config,
) -> Check {
    const NAME: &str = "tls";
    let seen = recorder.recorded();
    let Err(error) = tls_result else {
        return seen.map_or_else(
            || Check::pass(NAME, "the certificate is trusted"),
            |certificate| check_certificate(NAME, engine, &certificate),
        );
    };
    let cause = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    let recorded = seen.unwrap_or_default();
    match cause {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => {
            let names = recorded.names.join(", ");
            let message = format!(
                "the certificate is not for {}: it is for {names}",
                engine.host()
            );
            Check::fail(NAME, message)
                .with_next_step("give --engine with a name that the certificate is for")
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => Check::fail(
            NAME,
            format!("the certificate expired at {}", recorded.expires_at),
        )
        .with_next_step("renew it on the engine, or correct the clock of this machine"),
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            let message = format!(
                "the certificate is signed by {}, which is not trusted here",
                recorded.issuer
            );
            let step = match &config.trust {
                Trust::CaFile(path) => format!(
                    "{} holds other CAs: use the CA of this engine",
                    path.display()
                ),
                _ => "an engine with a private CA needs --ca-file".to_owned(),
            };
            Check::fail(NAME, message).with_next_step(step)
        }
        Some(rustls::Error::InvalidMessage(_)) => Check::fail(NAME, "the port does not speak TLS")
            .with_next_step(
                "is it the engine's port? metrics and the plain listener use other ports",
            ),
        _ => Check::fail(NAME, format!("the handshake failed: {}", chain(error)))
            .with_next_step("is --engine the address of an engine?"),
    }
}

fn check_certificate(name: &'static str, engine: &HostPort, certificate: &Certificate) -> Check {
    let Certificate {
        names,
        issuer,
        expires_at,
        ..
    } = certificate;
    let message = format!("for {} by {issuer}, until {expires_at}", names.join(", "));
    let ends: Option<Timestamp> = expires_at.parse().ok();
    let is_soon = ends.is_some_and(|ends| ends.duration_since(Timestamp::now()) < RENEWAL_WARNING);
    if is_soon {
        return Check::warn(name, message)
            .with_next_step("it expires soon: renew it on the engine");
    }
    let is_name = engine.host().parse::<IpAddr>().is_err();
    if is_name && !covers_tunnels(engine.host(), names) {
        return Check::warn(name, message).with_next_step(format!(
            "browsers refuse published names: the certificate needs *.t.{}",
            engine.host()
        ));
    }
    Check::pass(name, message)
}

/// Checks that the certificate covers published names: those of the engine, or those of its cluster
/// if the engine's own name belongs to a project.
fn covers_tunnels(host: &str, names: &[String]) -> bool {
    let cluster = host.split_once('.').map_or(host, |(_, cluster)| cluster);
    [host, cluster]
        .iter()
        .any(|base| names.iter().any(|name| *name == format!("*.t.{base}")))
}

/// Checks that the engine accepts the agent protocol. A proxy that terminates TLS in front of it
/// supports only HTTP.
async fn check_agents(
    config: &Config,
    recorder: &Arc<RecordingVerifier>,
    route: &EngineRoute<'_>,
    limit: Duration,
) -> Check {
    const NAME: &str = "alpn";
    let (socket, check) = match route {
        EngineRoute::Proxy(proxy) => connect_through(proxy, &config.engine, limit).await,
        EngineRoute::Direct(_, addresses) => connect(addresses, limit).await,
    };
    let Some(socket) = socket else {
        return Check {
            name: NAME,
            ..check
        };
    };
    match handshake(&config.engine, recorder, AGENTS, socket, limit).await {
        Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(AGENTS) => {
            Check::pass(NAME, "agent protocol svc/1 and HTTP are both offered")
        }
        Ok(_) => Check::fail(
            NAME,
            "the engine's port offers HTTP, but not the agent protocol \
                                    svc/1",
        )
        .with_next_step(PASS_THROUGH),
        Err(error) => {
            let refused = error
                .get_ref()
                .and_then(|error| error.downcast_ref::<rustls::Error>());
            let is_about_alpn = matches!(
                refused,
                Some(rustls::Error::AlertReceived(
                    AlertDescription::NoApplicationProtocol
                ))
            );
            let why = if is_about_alpn {
                "the server refuses svc/1".to_owned()
            } else {
                chain(&error)
            };
            Check::fail(NAME, format!("the agent protocol is not available: {why}"))
                .with_next_step(PASS_THROUGH)
        }
    }
}

/// Compares the clocks, because tokens and certificates are checked against them.
async fn check_clock(engine: &HostPort, stream: TlsStream, limit: Duration) -> Check {
    const NAME: &str = "clock";
    let started = Timestamp::now();
    let Ok(Some(theirs)) = timeout(limit, date(engine, stream)).await else {
        return Check::skip(NAME, "the engine's response has no Date header");
    };
    // The date has a resolution of one second, and its second started before the response arrived.
    let apart = theirs.duration_since(started);
    if apart.abs() <= CLOCK_TOLERANCE {
        return Check::pass(NAME, "clocks agree to within a few seconds");
    }
    let (seconds, direction) = (
        apart.abs().as_secs(),
        if apart.is_negative() {
            "ahead of"
        } else {
            "behind"
        },
    );
    let message = format!("this machine is {seconds} s {direction} the engine");
    Check::warn(NAME, message).with_next_step(
        "tokens signed on this machine are refused: synchronize both clocks with a \
                         time server",
    )
}

async fn date(engine: &HostPort, stream: TlsStream) -> Option<Timestamp> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.ok()?;
    let request = Request::get("/api/auth")
        .header(header::HOST, engine.to_string())
        .body(Empty::<Bytes>::new())
        .ok()?;
    let answer = async {
        let answer = sender.send_request(request).await.ok()?;
        let date = answer.headers().get(header::DATE)?.to_str().ok()?;
        Some(rfc2822::parse(date).ok()?.timestamp())
    };
    tokio::select! {
        answer = answer => answer,
        _ended = connection => None,
    }
}

/// The file with the CA certificates, if it is not the system's store.
pub(super) fn ca_file(config: &Config) -> Option<PathBuf> {
    match &config.trust {
        Trust::CaFile(path) => Some(path.clone()),
        _ => None,
    }
}

/// The elapsed time in milliseconds.
pub(super) fn millis(started: Instant) -> String {
    format!("{:.1} ms", started.elapsed().as_secs_f64() * 1000.0)
}

const PROXY: &str = "proxy";
const AGENTS: &[u8] = b"svc/1";
const PASS_THROUGH: &str = "a proxy in front of the engine terminates TLS: configure it to pass \
                            TLS through";
/// Warns a week before the certificate expires.
const RENEWAL_WARNING: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Engines tolerate this much of a token that is not valid yet. The header has a resolution of one
/// second.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_names_belong_to_the_engine_or_to_its_cluster() {
        let names = ["engine.example".to_owned(), "*.t.engine.example".to_owned()];
        assert!(covers_tunnels("engine.example", &names));
        assert!(covers_tunnels("e7e8a732.engine.example", &names));
        assert!(!covers_tunnels("other.example", &names));
        assert!(!covers_tunnels("engine.example", &names[..1]));
    }
}
