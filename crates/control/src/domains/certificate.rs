//! Certificates that projects upload for their domains. The database has the key encrypted and
//! bound to its domain.

use std::sync::Arc;

use acme::{ChainError, IssuedCertificate};
use api::control::domains::{Domain, MAX_CHAIN_BYTES, MAX_KEY_BYTES, UploadCertificate};
use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use store::SealedBytes;
use store::domains::{self, UploadedCertificate};
use types::event::EventType;
use types::id::DomainId;
use types::permission::Permission;
use types::problem::Problem;
use zeroize::Zeroizing;

use super::changes;
use super::read::find;
use super::records::ExpectedRecords;
use super::view::view;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, ProjectsWrite};
use crate::http_api::extract::{Body, Path};
use crate::http_api::problem::{HandlerResult, Refusal, bad};
use crate::keys::Seal;

/// Stores a certificate of the project, in place of an earlier one. The engines use it immediately.
pub(super) async fn upload(
    Caller { principal: who, .. }: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, domain_id)): Path<(String, String)>,
    Body(body): Body<UploadCertificate>,
) -> HandlerResult<Json<Domain>> {
    let key = Zeroizing::new(body.private_key);
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = access::locked_project(&mut tx, &who, &project_id, WRITE).await?;
    access::require_usable(&project)?;
    let domain = find(&mut tx, &project, &domain_id).await?;
    if !domain.state.is_served() {
        let detail = "The domain is not verified. Enter its DNS records, and verify it first.";
        return Err(Problem::new(409, "domain_not_verified", detail).into());
    }
    let checked = check(&domain.hostname, &body.certificate, &key, now)?;
    let certificate = UploadedCertificate {
        sealed_key: sealed(&app, domain.id, &key)?,
        chain: checked.chain,
        expires_at: checked.expires_at,
    };
    if !domains::set_certificate(&mut tx, project.id, domain.id, &certificate, now).await? {
        return Err(Problem::not_found().into());
    }
    let domain = domains::Domain {
        certificate_expires_at: Some(certificate.expires_at),
        ..domain
    };
    let expected = ExpectedRecords::new(&app, &project, &domain)?;
    let kind = EventType::DomainCertificateUploaded;
    changes::note(&mut tx, &app, (&project, &domain), kind, Some(&who), now).await?;
    tx.commit().await?;
    app.webhooks.wake();
    Ok(Json(view(&domain, &expected)))
}

/// Deletes the certificate of the project with its key. The engine orders one again.
pub(super) async fn remove(
    Caller { principal: who, .. }: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, domain_id)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = access::locked_project(&mut tx, &who, &project_id, WRITE).await?;
    let domain = find(&mut tx, &project, &domain_id).await?;
    if domains::remove_certificate(&mut tx, project.id, domain.id, now).await? {
        let kind = EventType::DomainCertificateRemoved;
        changes::note(&mut tx, &app, (&project, &domain), kind, Some(&who), now).await?;
    }
    tx.commit().await?;
    app.webhooks.wake();
    Ok(StatusCode::NO_CONTENT)
}

/// A chain that may be stored. It contains certificates only.
#[derive(Debug)]
struct CheckedChain {
    chain: String,
    expires_at: Timestamp,
}

/// Checks a certificate with its key for a domain, as clients do.
///
/// # Errors
/// 400 with the field and the next step. The texts contain nothing of the key.
fn check(hostname: &str, chain: &str, key: &str, now: Timestamp) -> HandlerResult<CheckedChain> {
    for (field, text, most) in [
        ("certificate", chain, MAX_CHAIN_BYTES),
        ("privateKey", key, MAX_KEY_BYTES),
    ] {
        if text.len() > most {
            let detail = format!("{field}: it is larger than {most} bytes; check the file");
            return Err(bad(field, detail));
        }
    }
    if PrivateKeyDer::from_pem_slice(key.as_bytes()).is_err() {
        let detail = "privateKey: expected a private key in PEM without a password (PKCS#8, PKCS#1 or \
                      SEC 1); `openssl pkey -in FILE` removes a password";
        return Err(bad("privateKey", detail));
    }
    let names = [hostname.to_owned()];
    let provider = daemon::tls::provider();
    let issued = IssuedCertificate::check(chain, key, &names, now.as_second(), &provider)
        .map_err(|error| refusal(hostname, &error))?;
    let expires_at = Timestamp::from_second(issued.validity().not_after);
    Ok(CheckedChain {
        // The text of the user may contain more than certificates, even the key.
        chain: pem(&issued.certified().cert),
        expires_at: expires_at.unwrap_or(Timestamp::MAX),
    })
}

fn refusal(hostname: &str, error: &ChainError) -> Refusal {
    let certificate = |text: &str| bad("certificate", format!("certificate: {text}"));
    match error {
        ChainError::Format => certificate(
            "expected 1 to 10 certificates in PEM: that of the domain first, then those of its issuers",
        ),
        ChainError::Certificate => {
            certificate("one of the certificates cannot be parsed; export the chain as PEM again")
        }
        ChainError::Order => certificate(
            "each certificate must be followed by that of its issuer; put the one of the domain first",
        ),
        ChainError::Signature => certificate(
            "the certificates are not signed by their issuers, or not for servers; upload the chain \
             that the authority provided",
        ),
        ChainError::Key => bad(
            "privateKey",
            "privateKey: this key does not belong to the certificate, or is of no kind for TLS; upload \
             the key for which the certificate was requested",
        ),
        ChainError::Name(_) => certificate(&format!(
            "it is not for {hostname}; get one with this name from the authority"
        )),
        ChainError::Expired => certificate("it has expired; get a new one from the authority"),
        ChainError::NotYet => certificate("it is not valid yet; upload it when it is"),
    }
}

/// Certificates in PEM (RFC 7468).
fn pem(chain: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in chain {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, next) = rest.split_at(rest.len().min(PEM_COLUMNS));
            text.push_str(line);
            text.push('\n');
            rest = next;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// The encrypted key of a domain's certificate, for the database.
fn sealed(app: &App, id: DomainId, key: &str) -> HandlerResult<SealedBytes> {
    let sealed = seal(app)?.seal(id.as_str(), key.as_bytes())?;
    Ok(SealedBytes(sealed))
}

/// The key of a domain's certificate, PEM. `None` if it cannot be decrypted, because the platform's
/// key was changed.
pub(crate) fn opened_key(
    app: &App,
    id: DomainId,
    SealedBytes(sealed): &SealedBytes,
) -> Option<Zeroizing<String>> {
    let opened = seal(app).ok()?.open(id.as_str(), sealed)?;
    let text = std::str::from_utf8(&opened).ok()?;
    Some(Zeroizing::new(text.to_owned()))
}

fn seal(app: &App) -> HandlerResult<Seal> {
    Seal::new(&app.keys.derive("domain-certificates")?)
}

const WRITE: Permission = Permission::AccountProjectsReadWrite;

/// Characters in a line (RFC 7468 section 2).
const PEM_COLUMNS: usize = 64;

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    const NAME: &str = "app.example.com";

    /// A certificate that is valid in 2030, and its key.
    fn make(name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2031, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn refused(hostname: &str, chain: &str, key: &str, at: &str) -> (String, String) {
        let refused = check(hostname, chain, key, at.parse().unwrap()).unwrap_err();
        let problem = refused.problem();
        (
            problem.field.clone().unwrap_or_default(),
            problem.detail.to_string(),
        )
    }

    #[test]
    fn the_key_is_not_stored_with_the_chain() {
        let (chain, key) = make(NAME);
        let now = "2030-06-01T00:00:00Z".parse().unwrap();
        let both = format!("{key}{chain}");
        let checked = check(NAME, &both, &key, now).unwrap();
        assert_eq!(checked.expires_at.to_string(), "2031-01-01T00:00:00Z");
        assert!(!checked.chain.contains("PRIVATE"), "{}", checked.chain);
        // The text that is stored is accepted again.
        let again = check(NAME, &checked.chain, &key, now).unwrap();
        assert_eq!(again.chain, checked.chain);
    }

    #[test]
    fn a_refusal_of_a_key_names_the_field_and_the_reason() {
        let (chain, key) = make(NAME);
        let (_, other_key) = make(NAME);
        let long = "x".repeat(MAX_KEY_BYTES + 1);
        let locked = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        for (key, reason) in [
            (&other_key, "does not belong"),
            (&locked, "without a password"),
            (&chain, "without a password"),
            (&long, "larger than 8192 bytes"),
        ] {
            let (found, detail) = refused(NAME, &chain, key, NOW);
            assert_eq!(found, "privateKey", "{detail}");
            assert!(detail.contains(reason), "{detail}");
        }
    }

    #[test]
    fn a_refusal_of_a_certificate_names_the_field_and_the_reason() {
        let (chain, key) = make(NAME);
        let (wildcard, wildcard_key) = make("*.example.com");
        let long = "x".repeat(MAX_CHAIN_BYTES + 1);
        let (expired, early) = ("2031-01-01T00:00:01Z", "2029-12-31T00:00:00Z");
        let below = "*.app.example.com";
        for (name, chain, key, at, reason) in [
            (NAME, &long, &key, NOW, "larger than 32768 bytes"),
            (NAME, &key, &key, NOW, "1 to 10 certificates"),
            ("b.example.com", &chain, &key, NOW, "not for b.example.com"),
            (below, &wildcard, &wildcard_key, NOW, "not for"),
            (NAME, &chain, &key, expired, "has expired"),
            (NAME, &chain, &key, early, "not valid yet"),
        ] {
            let (found, detail) = refused(name, chain, key, at);
            assert_eq!(found, "certificate", "{detail}");
            assert!(detail.contains(reason), "{detail}");
        }
        let now = NOW.parse().unwrap();
        assert!(check("a.example.com", &wildcard, &wildcard_key, now).is_ok());
    }

    const NOW: &str = "2030-06-01T00:00:00Z";
}
