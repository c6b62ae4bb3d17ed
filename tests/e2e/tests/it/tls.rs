//! Routing by the TLS handshake.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Agent, Curl, Service, Svc, connector, eventually};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;

/// EN-10: agents connect with the base host name and no other.
#[tokio::test]
async fn only_the_base_host_accepts_the_agent_protocol() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::mirror()?.to_string();
    let _agent = Agent::forward(&svc, &service, &["--http", "--hostname", "web"])?;
    for protocol in ["svc/1", "rstrm/1"] {
        let spoken = chosen(&svc, "engine.localhost", &[protocol, "h2"]).await?;
        assert_eq!(spoken.as_deref(), Some(protocol));
        for name in ["web.t.engine.localhost", "nobody.t.engine.localhost"] {
            assert!(chosen(&svc, name, &[protocol]).await.is_err(), "{name}");
        }
    }
    let spoken = chosen(&svc, "web.t.engine.localhost", &["h2", "http/1.1"]).await?;
    assert_eq!(spoken.as_deref(), Some("h2"));
    Ok(())
}

/// EN-12: a replaced certificate is used by a later handshake, and an invalid one never.
#[test]
fn a_replaced_certificate_is_used_soon() -> Result<()> {
    let svc = Svc::engine()?;
    let document = format!("https://{}/api/openapi.json", svc.address());
    let before = Curl::new(&svc);
    assert_eq!(before.get(&[&document])?.status, 200);

    svc.break_certificate()?;
    let replaced = Curl::trusting(svc.replace_certificate()?);
    // The files are checked during a handshake, so this polls.
    for _ in 0..1000 {
        if let Ok(answer) = replaced.get(&[&document]) {
            assert_eq!(answer.status, 200);
            assert!(
                before.get(&[&document]).is_err(),
                "the old one is in service"
            );
            return Ok(());
        }
    }
    bail!("it never came; {}", svc.log())
}

/// The script of `docs/certificates.md`, at the first issue and at a renewal.
#[test]
fn the_hook_of_certbot_replaces_the_certificate() -> Result<()> {
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/certificate-hook.sh");
    let directory = tempfile::tempdir()?;
    let tls = directory.path().join("tls");
    let group = Command::new("id").arg("-gn").output()?.stdout;
    let issue = |name: &str| {
        let lineage = directory.path().join(name);
        fs::create_dir(&lineage)?;
        let authority = Svc::lineage(&lineage)?;
        let ended = Command::new(&hook)
            .env("RENEWED_LINEAGE", &lineage)
            .env("SVC_TLS_DIR", &tls)
            .env("SVC_TLS_GROUP", String::from_utf8_lossy(&group).trim_end())
            .status()?;
        ensure!(ended.success(), "{ended}");
        anyhow::Ok(Curl::trusting(authority))
    };
    let before = issue("first")?;
    let certificate = json!({
        "cert_file": tls.join("fullchain.pem"),
        "key_file": tls.join("privkey.pem"),
    });
    let svc = Svc::engine_with(&json!({"certs": {"static": certificate}}))?;
    let document = format!("https://{}/api/openapi.json", svc.address());
    assert_eq!(before.get(&[&document])?.status, 200);
    let mode = fs::metadata(tls.join("privkey.pem"))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o640);

    let renewed = issue("renewed")?;
    eventually("the renewed certificate", || {
        Ok(renewed.get(&[&document]).is_ok())
    })?;
    assert!(
        before.get(&[&document]).is_err(),
        "the old one is in service"
    );
    assert_eq!(fs::read_dir(&tls)?.count(), 2);
    Ok(())
}

/// The protocol that a handshake for `name` negotiates.
async fn chosen(svc: &Svc, name: &str, protocols: &[&str]) -> Result<Option<String>> {
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.parse::<u16>()?)).await?;
    let name = ServerName::try_from(name.to_owned())?;
    let stream = connector(svc, protocols)?.connect(name, stream).await?;
    let chosen = stream.get_ref().1.alpn_protocol();
    Ok(chosen.map(|name| String::from_utf8_lossy(name).into_owned()))
}
