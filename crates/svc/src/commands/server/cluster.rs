//! `svc cluster`: the certificates of a cluster's engines.
//!
//! Each cluster has an authority of its own, which no other program trusts. Its name constraints
//! (RFC 5280 section 4.2.1.10) allow only names of the cluster's engines.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use engine::cluster::{cluster_domain, engine_name, is_label};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use serde::Serialize;
use x509_parser::pem::parse_x509_pem;

use super::signing::{cannot_make, issue, read, valid_for, write};
use crate::{
    failure::{Code, Failure},
    output,
    output::Format,
};

/// The subcommands of `svc cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the authority of a new cluster, and a certificate for each engine
    #[command(after_help = "Examples:
  svc cluster init prod engine-1 engine-2 engine-3
  svc cluster init prod engine-1 engine-2 --dir /etc/svc/cluster

Each engine needs `ca.pem` and its own two files, such as `engine-1.pem` and `engine-1.key`. `ca.key`
signs certificates of further engines (`svc cluster add`): keep it off the engines.")]
    Init(InitArgs),

    /// Create a certificate for a further engine
    #[command(after_help = "Example:\n  svc cluster add engine-4 --dir /etc/svc/cluster")]
    Add(AddArgs),
}

/// The flags of `svc cluster init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Id of the cluster: lower-case letters, digits and hyphens
    cluster: String,

    /// Ids of the engines, such as `engine-1`
    #[arg(required = true, value_name = "ENGINE")]
    engines: Vec<String>,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc cluster add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Ids of the engines, such as `engine-4`
    #[arg(required = true, value_name = "ENGINE")]
    engines: Vec<String>,

    #[command(flatten)]
    common: Common,
}

/// The flags of both subcommands.
#[derive(Debug, Args)]
struct Common {
    /// Directory of the files. No existing file is replaced
    #[arg(long, value_name = "DIR", default_value = "cluster")]
    dir: PathBuf,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// The created files.
#[derive(Serialize)]
struct CreatedFiles<'a> {
    cluster: &'a str,
    ca: PathBuf,
    engines: Vec<EngineFiles>,
}

/// The files of one engine.
#[derive(Serialize)]
struct EngineFiles {
    engine: String,
    cert: PathBuf,
    key: PathBuf,
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Init(args) => init(args),
        Command::Add(args) => add(args),
    }
}

fn init(args: &InitArgs) -> Result<(), Failure> {
    check_id("cluster", &args.cluster)?;
    let (cert, key) = authority_files(&args.common.dir);
    let engines = engine_files(&args.engines, &args.common.dir)?;
    refuse_existing([&cert, &key])?;
    let issuer = {
        let key_pair = KeyPair::generate().map_err(cannot_make)?;
        let params = authority_params(&args.cluster);
        let certificate = params.self_signed(&key_pair).map_err(cannot_make)?;
        write(&key, &key_pair.serialize_pem())?;
        write(&cert, &certificate.pem())?;
        Issuer::new(params, key_pair)
    };
    create(&args.cluster, &issuer, engines, &args.common)
}

fn add(args: &AddArgs) -> Result<(), Failure> {
    let (cert_file, key_file) = authority_files(&args.common.dir);
    let engines = engine_files(&args.engines, &args.common.dir)?;
    let (Some(cert), Some(key)) = (read(&cert_file)?, read(&key_file)?) else {
        let message = format!("{} has no ca.pem and ca.key", args.common.dir.display());
        return Err(Failure::usage(message).hint("`svc cluster init` creates them"));
    };
    let unusable = |problem: &str| {
        Failure::new(
            Code::Failed,
            format!("cannot use {}: {problem}", cert_file.display()),
        )
    };
    let cluster =
        cluster_of(&cert).ok_or_else(|| unusable("it is not the authority of a cluster"))?;
    let key = KeyPair::from_pem(&key).map_err(|error| unusable(&error.to_string()))?;
    let issuer = Issuer::from_ca_cert_pem(&cert, key);
    let issuer = issuer.map_err(|error| unusable(&error.to_string()))?;
    create(&cluster, &issuer, engines, &args.common)
}

/// Signs a certificate for each engine, and prints the files.
fn create(
    cluster: &str,
    issuer: &Issuer<'static, KeyPair>,
    engines: Vec<EngineFiles>,
    common: &Common,
) -> Result<(), Failure> {
    for files in &engines {
        let params = engine_params(cluster, &files.engine).map_err(cannot_make)?;
        issue(&params, issuer, &files.cert, &files.key)?;
    }
    match common.output {
        Format::Json => output::json(&CreatedFiles {
            cluster,
            ca: authority_files(&common.dir).0,
            engines,
        }),
        Format::Text => engines.iter().try_for_each(|files| {
            output::line(&format!(
                "{}: {} and {}",
                files.engine,
                files.cert.display(),
                files.key.display()
            ))
        }),
    }
}

/// The certificate of the authority and its key.
fn authority_files(dir: &Path) -> (PathBuf, PathBuf) {
    (dir.join("ca.pem"), dir.join("ca.key"))
}

/// The files of new engines, none of which exists.
fn engine_files(engines: &[String], dir: &Path) -> Result<Vec<EngineFiles>, Failure> {
    let mut files: Vec<EngineFiles> = Vec::with_capacity(engines.len());
    for engine in engines {
        check_id("engine", engine)?;
        if engine == "ca" || files.iter().any(|known| known.engine == *engine) {
            let message = format!("{engine:?} is the name of other files");
            return Err(Failure::usage(message));
        }
        files.push(EngineFiles {
            engine: engine.clone(),
            cert: dir.join(format!("{engine}.pem")),
            key: dir.join(format!("{engine}.key")),
        });
    }
    refuse_existing(files.iter().flat_map(|files| [&files.cert, &files.key]))?;
    Ok(files)
}

/// A replaced authority would separate the engines of a running cluster.
fn refuse_existing<'f>(files: impl IntoIterator<Item = &'f PathBuf>) -> Result<(), Failure> {
    let existing = files.into_iter().find(|file| file.exists());
    existing.map_or(Ok(()), |file| {
        let message = format!("{} exists already", file.display());
        Err(Failure::new(Code::Conflict, message)
            .hint("use another directory, or remove the file if no engine uses it"))
    })
}

fn check_id(of: &str, id: &str) -> Result<(), Failure> {
    if is_label(id) {
        return Ok(());
    }
    let message = format!("{id:?} is not a valid id of the {of}");
    Err(Failure::usage(message)
        .hint("use up to 63 lower-case letters, digits and hyphens, such as `engine-1`"))
}

fn authority_params(cluster: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{COMMON_NAME}{cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName(cluster_domain(cluster))],
        excluded_subtrees: Vec::new(),
    });
    valid_for(&mut params, VALID_DAYS);
    params
}

fn engine_params(cluster: &str, engine: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![engine_name(cluster, engine)])?;
    params.distinguished_name.push(DnType::CommonName, engine);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // An engine connects to the others, and they connect to it.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, VALID_DAYS);
    Ok(params)
}

/// The id of the cluster whose authority has this certificate.
fn cluster_of(pem: &str) -> Option<String> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    let cluster = name.as_str().ok()?.strip_prefix(COMMON_NAME)?;
    is_label(cluster).then(|| cluster.to_owned())
}

/// The common name of an authority, before the id of its cluster.
const COMMON_NAME: &str = "svc cluster ";

/// Ten years: all engines must be restarted with new files before they end.
const VALID_DAYS: i64 = 3650;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use rustls::{
        RootCertStore,
        client::verify_server_cert_signed_by_trust_anchor,
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
        server::ParsedCertificate,
    };

    use super::*;

    fn common(dir: &Path) -> Common {
        Common {
            dir: dir.to_owned(),
            output: Format::Json,
        }
    }

    fn initialise(dir: &Path, cluster: &str, engines: &[&str]) -> Result<(), Failure> {
        init(&InitArgs {
            cluster: cluster.to_owned(),
            engines: engines.iter().map(|engine| (*engine).to_owned()).collect(),
            common: common(dir),
        })
    }

    fn extend(dir: &Path, engine: &str) -> Result<(), Failure> {
        add(&AddArgs {
            engines: vec![engine.to_owned()],
            common: common(dir),
        })
    }

    /// True if the authority in `dir` vouches for an engine under this name.
    fn vouches(dir: &Path, engine: &str, name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap();
        roots.add(ca).unwrap();
        let file = dir.join(format!("{engine}.pem"));
        let certificate = CertificateDer::from_pem_file(file).unwrap();
        let parsed = ParsedCertificate::try_from(&certificate).unwrap();
        let algorithms =
            rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::now();
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms.all).is_ok()
            && rustls::client::verify_server_name(&parsed, &name).is_ok()
    }

    #[test]
    fn each_engine_gets_a_certificate_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        initialise(dir, "prod", &["engine-1", "engine-2"]).unwrap();
        extend(dir, "engine-3").unwrap();
        for engine in ["engine-1", "engine-2", "engine-3"] {
            assert!(
                vouches(dir, engine, &engine_name("prod", engine)),
                "{engine}"
            );
        }
        assert!(!vouches(dir, "engine-1", &engine_name("prod", "engine-2")));
        assert!(!vouches(dir, "engine-1", &engine_name("test", "engine-1")));
    }

    #[test]
    fn keys_are_readable_only_by_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        initialise(dir.path(), "prod", &["engine-1"]).unwrap();
        for name in ["ca.key", "engine-1.key"] {
            let mode = fs::metadata(dir.path().join(name)).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn no_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        initialise(dir, "prod", &["engine-1"]).unwrap();
        let before = fs::read(dir.join("ca.pem")).unwrap();
        assert!(initialise(dir, "prod", &["engine-2"]).is_err());
        assert!(!dir.join("engine-2.pem").exists());
        assert!(extend(dir, "engine-1").is_err());
        assert_eq!(fs::read(dir.join("ca.pem")).unwrap(), before);
    }

    #[test]
    fn ids_that_no_certificate_can_contain_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new");
        for (cluster, engine) in [
            ("Prod", "engine-1"),
            ("prod", "engine 1"),
            ("prod", "ca"),
            ("prod", "../engine"),
        ] {
            assert!(
                initialise(&dir, cluster, &[engine]).is_err(),
                "{cluster} {engine}"
            );
        }
        assert!(initialise(&dir, "prod", &["engine-1", "engine-1"]).is_err());
        assert!(!dir.exists());
        assert!(extend(&dir, "engine-1").is_err(), "there is no authority");
    }

    /// The development CA of `svc up` signs no certificates of engines.
    #[test]
    fn another_authority_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
        fs::write(dir.path().join("ca.pem"), made.cert.pem()).unwrap();
        fs::write(dir.path().join("ca.key"), made.signing_key.serialize_pem()).unwrap();
        assert!(extend(dir.path(), "engine-1").is_err());
    }
}
