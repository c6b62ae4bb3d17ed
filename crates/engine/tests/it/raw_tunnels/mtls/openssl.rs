//! Certificates made by `openssl`, and visits with `curl`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, SupportedProtocolVersion};
use tempfile::TempDir;
use testing::TestEngine;

/// A directory in which `openssl` creates keys and certificates.
pub(crate) struct Pki(TempDir);

/// A certificate with its key and its chain.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pki {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, arguments: &[&str]) {
        let program = program("SVC_TEST_OPENSSL", "openssl");
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .expect("openssl is installed");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    /// A self-signed certificate with a key of this kind (`rsa:2048`, `ec`, `ed25519`), valid for
    /// this many days.
    pub(crate) fn self_signed(&self, name: &str, kind: &str, days: u32) -> Identity {
        let days = days.to_string();
        self.request(name, kind, &["-x509", "-days", &days]);
        self.identity(name)
    }

    /// A self-signed authority, valid for this many days. Returns its certificate in PEM.
    pub(crate) fn authority(&self, name: &str, days: u32) -> String {
        let days = days.to_string();
        let more = [
            "-x509",
            "-days",
            &days,
            "-addext",
            "keyUsage=critical,keyCertSign",
        ];
        self.request(name, "ec", &more);
        self.pem(name)
    }

    /// A certificate signed by an authority, with these extensions, valid for this many days.
    pub(crate) fn signed(
        &self,
        name: &str,
        kind: &str,
        by: &str,
        extensions: &str,
        days: u32,
    ) -> Identity {
        self.request(name, kind, &[]);
        let file = format!("{name}.ext");
        std::fs::write(self.path(&file), extensions).unwrap();
        let days = days.to_string();
        let [request, own] = [format!("{name}.csr"), format!("{name}.pem")];
        let [certificate, key] = [format!("{by}.pem"), format!("{by}.key")];
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-out",
            &own,
            "-CA",
            &certificate,
            "-CAkey",
            &key,
            "-CAcreateserial",
            "-days",
            &days,
            "-extfile",
            &file,
        ]);
        self.identity(name)
    }

    /// The same identity with another certificate appended to its own.
    pub(crate) fn with(&self, name: &str, behind: &str) -> Identity {
        let chain = self.path(&format!("{name}+{behind}.pem"));
        std::fs::write(&chain, self.pem(name) + &self.pem(behind)).unwrap();
        Identity {
            chain,
            ..self.identity(name)
        }
    }

    fn request(&self, name: &str, kind: &str, more: &[&str]) {
        let out = if more.is_empty() { "csr" } else { "pem" };
        let [key, out] = [format!("{name}.key"), format!("{name}.{out}")];
        let subject = format!("/CN={name}");
        let mut arguments = vec![
            "req", "-new", "-nodes", "-newkey", kind, "-keyout", &key, "-out", &out, "-subj",
            &subject,
        ];
        if kind == "ec" {
            arguments.extend(["-pkeyopt", "ec_paramgen_curve:P-256"]);
        }
        arguments.extend(more);
        self.openssl(&arguments);
    }

    fn identity(&self, name: &str) -> Identity {
        Identity {
            chain: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
        }
    }

    pub(crate) fn pem(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.pem"))).unwrap()
    }
}

impl Identity {
    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let chain = CertificateDer::pem_file_iter(&self.chain).unwrap();
        chain.map(Result::unwrap).collect()
    }

    /// SHA-256 of the certificate, as stored in a credential.
    pub(crate) fn sha256(&self) -> String {
        let sum = digest(&SHA256, &self.certificates()[0]);
        let bytes = sum.as_ref().iter();
        let digits = bytes.flat_map(|byte| [byte >> 4, byte & 15]);
        digits
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect()
    }

    /// A client that presents it, with these ALPN names and versions.
    pub(crate) fn client(
        &self,
        engine: &TestEngine,
        alpns: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(engine.ca().certificate()).unwrap();
        let key = PrivateKeyDer::from_pem_file(&self.key).unwrap();
        let mut config = ClientConfig::builder_with_provider(daemon::tls::provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(self.certificates(), key)
            .unwrap();
        config.alpn_protocols = alpns.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// Result of a curl run.
#[derive(Debug)]
pub(crate) struct CurlOutput {
    /// `None` without an answer.
    pub(crate) status: Option<u16>,
    pub(crate) body: String,
    /// Error output of curl.
    pub(crate) errors: String,
}

/// Visits a published name with curl.
pub(crate) async fn curl(
    engine: &TestEngine,
    host: &str,
    identity: Option<&Identity>,
    options: &[&str],
) -> CurlOutput {
    let port = engine.addr().port();
    let ca = engine.directory().join("ca.pem");
    std::fs::write(&ca, engine.ca().pem()).unwrap();
    let mut command = Command::new(program("SVC_TEST_CURL", "curl"));
    command
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--write-out",
            "\n%{http_code}",
        ])
        .args(["--resolve", &format!("{host}:{port}:127.0.0.1"), "--cacert"])
        .arg(&ca)
        .args(options)
        .arg(format!("https://{host}:{port}/"));
    if let Some(identity) = identity {
        command.args([Path::new("--cert"), &identity.chain]);
        command.args([Path::new("--key"), &identity.key]);
    }
    let running = tokio::task::spawn_blocking(move || command.output());
    let Output { stdout, stderr, .. } = running.await.unwrap().expect("curl is installed");
    let text = String::from_utf8(stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    CurlOutput {
        status: status.parse().ok().filter(|status| *status != 0),
        body: body.to_owned(),
        errors: String::from_utf8(stderr).unwrap(),
    }
}

fn program(variable: &str, name: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| name.into())
}
