//! `svc domain certificate`: a certificate of the project's own for a domain.

use std::path::{Path, PathBuf};

use api::control::domains::{
    DELETE_CERTIFICATE, Domain, DomainCertificate, DomainCertificateSource, MAX_CHAIN_BYTES,
    MAX_KEY_BYTES, PUT_CERTIFICATE, UploadCertificate,
};
use clap::{Parser, Subcommand};

use super::{NamedArgs, open, print};
use crate::commands::project::ProjectArg;
use crate::failure::Failure;
use crate::output;

/// The subcommands of `svc domain certificate`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Upload a certificate, in place of an earlier one or of the one that the engine ordered
    Set(SetArgs),
    /// Remove the uploaded certificate; the engine orders one again
    Remove(NamedArgs),
}

/// The flags of `svc domain certificate set`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc domain certificate set app.example.com --cert fullchain.pem --key privkey.pem")]
pub(crate) struct SetArgs {
    /// The domain: its name, its id or the start of its id
    domain: String,

    /// File of the certificate, followed by those of its issuers (PEM)
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,

    /// File of its private key, without a password (PEM)
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    #[command(flatten)]
    on: ProjectArg,
}

/// Runs a subcommand.
pub(super) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Set(args) => set(args).await,
        Command::Remove(args) => remove(args).await,
    }
}

async fn set(args: SetArgs) -> Result<(), Failure> {
    let body = UploadCertificate {
        certificate: read(&args.cert, "--cert", MAX_CHAIN_BYTES)?,
        private_key: read(&args.key, "--key", MAX_KEY_BYTES)?,
    };
    let (session, project, found) = open(&args.on, &args.domain).await?;
    let ids = [project.as_str(), found.id.as_str()];
    let call = session.platform.call(PUT_CERTIFICATE, &ids).body(&body)?;
    // The same certificate again changes nothing.
    let domain: Domain = call.repeatable().answer().await?;
    print(args.on.output, &domain)
}

async fn remove(args: NamedArgs) -> Result<(), Failure> {
    let (session, project, found) = open(&args.on, &args.domain).await?;
    let ids = [project.as_str(), found.id.as_str()];
    let call = session.platform.call(DELETE_CERTIFICATE, &ids);
    call.execute().await?;
    output::message(&format!(
        "{} has no certificate of its own any more; the engine orders one",
        found.hostname
    ));
    Ok(())
}

/// A file in PEM. Other bytes than text are not PEM, and the platform refuses them.
fn read(path: &Path, flag: &str, most: usize) -> Result<String, Failure> {
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let bytes = daemon::files::read_bounded(path, most).map_err(|error| {
        Failure::usage(format!("{} cannot be read: {error}", path.display()))
            .hint(format!("check {flag}: a file in PEM"))
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The source of the certificate that visitors get, as text.
pub(super) fn state_text(certificate: &DomainCertificate) -> String {
    match (certificate.source, &certificate.expires_at) {
        (DomainCertificateSource::Engine, at) => ordered(certificate, at.as_deref()),
        (DomainCertificateSource::Uploaded, Some(at)) => format!("uploaded, expires {at}"),
        (DomainCertificateSource::Uploaded, None) => "uploaded".to_owned(),
    }
}

fn ordered(certificate: &DomainCertificate, expires_at: Option<&str>) -> String {
    let mut text = "ordered by the engine".to_owned();
    if let Some(at) = expires_at {
        text.extend([", expires ", at]);
    }
    if let Some(problem) = &certificate.problem {
        text.extend(["; the last order failed: ", problem.as_str()]);
    }
    if let Some(at) = &certificate.next_attempt_at {
        text.extend(["; next attempt ", at.as_str()]);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_of_an_ordered_certificate_has_the_reason_of_a_failure() {
        for (certificate, expected) in [
            (json!({"source": "engine"}), "ordered by the engine"),
            (
                json!({"source": "engine", "expiresAt": "A"}),
                "ordered by the engine, expires A",
            ),
            (
                json!({"source": "engine", "problem": "no record", "nextAttemptAt": "B"}),
                "ordered by the engine; the last order failed: no record; next attempt B",
            ),
            (
                json!({"source": "uploaded", "expiresAt": "A"}),
                "uploaded, expires A",
            ),
        ] {
            let certificate: DomainCertificate = serde_json::from_value(certificate).unwrap();
            assert_eq!(state_text(&certificate), expected);
        }
    }
}
