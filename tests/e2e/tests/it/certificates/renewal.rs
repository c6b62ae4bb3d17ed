//! A renewal while visitors connect.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::{Authority, eventually};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;

use super::{ask_for_renewal, dns_program, port, stored_chain, wait_for_certificate};

/// A client of the engine that trusts only the authority and offers these protocols.
pub(super) fn client(authority: &Authority, protocols: &[&str]) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.root())?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed handshake has the certificate of an earlier one.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Ok(Arc::new(config))
}

/// The certificate of a complete handshake for the engine's name.
pub(super) fn handshake(port: u16, config: &Arc<ClientConfig>) -> Result<CertificateDer<'static>> {
    handshake_for("engine.localhost", port, config)
}

/// The certificate of a complete handshake for a name.
pub(super) fn handshake_for(
    name: &'static str,
    port: u16,
    config: &Arc<ClientConfig>,
) -> Result<CertificateDer<'static>> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(HANDSHAKE_LIMIT))?;
    let name = ServerName::try_from(name)?;
    let mut tls = ClientConnection::new(Arc::clone(config), name)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    let chain = tls.peer_certificates().context("no chain")?;
    let leaf = chain.first().context("no certificate")?;
    Ok(leaf.clone())
}

/// The program for DNS waits until the clients have seen the certificate in use, so that the order
/// ends while they connect.
#[test]
fn a_renewal_under_load_fails_no_handshake() -> Result<()> {
    let authority = Authority::start(&[])?;
    let held = authority.directory().join("held");
    let wait = format!("while [ -e '{}' ]; do sleep 0.1; done", held.display());
    let program = dns_program(&authority, &wait)?;
    let acme = json!({"challenges": ["dns-01"], "dns_program": program});
    let mut svc = authority.engine(&acme)?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    fs::write(&held, "")?;
    ask_for_renewal(&authority, &stored_chain(&authority)?)?;
    // The next question of a running engine is hours later.
    svc.start_again()?;
    let port = port(&svc)?;
    let config = client(&authority, &["http/1.1"])?;
    let first = handshake(port, &config)?;
    let order = authority.state_dir().join("order.json");
    let before = AtomicUsize::new(0);
    thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| connect_until_renewed(port, &config, &first, &before)))
            .collect();
        eventually("handshakes during the order", || {
            Ok(order.exists() && before.load(Ordering::Relaxed) >= HANDSHAKES)
        })?;
        fs::remove_file(&held)?;
        for client in clients {
            let connected = client.join();
            connected.map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok(())
    })
}

/// Connects until several handshakes had another certificate than `first`. No handshake may fail.
/// `before` counts those with `first`.
fn connect_until_renewed(
    port: u16,
    config: &Arc<ClientConfig>,
    first: &CertificateDer<'static>,
    before: &AtomicUsize,
) -> Result<()> {
    let deadline = Instant::now() + RENEWAL_LIMIT;
    let mut renewed = 0;
    while renewed < HANDSHAKES {
        if handshake(port, config)? == *first {
            before.fetch_add(1, Ordering::Relaxed);
        } else {
            renewed += 1;
        }
        ensure!(
            Instant::now() < deadline,
            "the certificate was not renewed: {renewed} handshakes with another one"
        );
    }
    Ok(())
}

const CLIENTS: usize = 2;

/// Handshakes with each of both certificates, of which the last ones are after the renewal.
const HANDSHAKES: usize = 50;

const HANDSHAKE_LIMIT: Duration = Duration::from_mins(1);

/// Longer than the wait for the first handshakes, whose message has the logs.
const RENEWAL_LIMIT: Duration = Duration::from_mins(2);
