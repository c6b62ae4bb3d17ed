//! Certificates of the engines' own names, as the engines report them and operators see them.

use std::collections::HashSet;

use api::control::operator::OperatorCertificate;
use api::link::{EngineCertificate, EngineCertificatesRecord, MAX_PROBLEM_BYTES};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::{Conn, Tx, engines};

use crate::http_api::problem::HandlerResult;
use crate::http_api::user_text::printable;
use crate::http_api::wire::date;

/// The value that is stored for a record.
///
/// # Errors
/// The member that exceeds a limit, and a description.
pub(super) fn stored_value(
    record: EngineCertificatesRecord,
) -> Result<Value, (String, &'static str)> {
    if record.certificates.len() > EngineCertificatesRecord::MAX_CERTIFICATES {
        return Err(("certificates".to_owned(), "has too many members"));
    }
    let mut printed = Vec::new();
    for (index, certificate) in record.certificates.into_iter().enumerate() {
        let wrong = |member: &str| Err((format!("certificates.{index}.{member}"), "is too long"));
        if certificate.source.len() > EngineCertificate::MAX_SOURCE_BYTES {
            return wrong("source");
        }
        let is_long = |name: &String| name.len() > EngineCertificate::MAX_NAME_BYTES;
        if certificate.names.len() > EngineCertificate::MAX_NAMES
            || certificate.names.iter().any(is_long)
        {
            return wrong("names");
        }
        let problem = certificate.problem.as_deref();
        if problem.is_some_and(|text| text.len() > MAX_PROBLEM_BYTES) {
            return wrong("problem");
        }
        printed.push(EngineCertificate {
            source: printable(&certificate.source),
            names: certificate
                .names
                .iter()
                .map(|name| printable(name))
                .collect(),
            // A part of it is the text of another server.
            problem: problem.map(printable),
            ..certificate
        });
    }
    Ok(json!(printed))
}

/// Stores the certificates of a reporter, if its batch has any. Returns the number of records.
pub(super) async fn store(
    tx: &mut Tx,
    reporter: (&str, &str),
    certificates: Option<&Value>,
    now: Timestamp,
) -> HandlerResult<u64> {
    let Some(certificates) = certificates else {
        return Ok(0);
    };
    engines::set_certificates(tx, reporter, certificates, now).await?;
    Ok(1)
}

/// The certificates that the engines of a cluster have reported lately. Engines with the same
/// certificate, and an engine before and after a restart, have one entry.
pub(crate) async fn reported(
    conn: &mut Conn,
    cluster_domain: &str,
    now: Timestamp,
) -> HandlerResult<Vec<OperatorCertificate>> {
    let since = now.saturating_sub(EXPIRY).unwrap_or(Timestamp::MIN);
    let reports = engines::certificates(conn, cluster_domain, since, MAX_REPORTERS).await?;
    let mut seen = HashSet::new();
    let mut certificates = Vec::new();
    for report in reports {
        // Another version of this platform may have stored another form.
        let list: Vec<EngineCertificate> =
            serde_json::from_value(report.certificates).unwrap_or_default();
        for certificate in list {
            if seen.insert(json!(certificate).to_string()) {
                certificates.push(to_api(certificate, report.certificates_at));
            }
        }
    }
    Ok(certificates)
}

fn to_api(certificate: EngineCertificate, reported_at: Timestamp) -> OperatorCertificate {
    OperatorCertificate {
        source: certificate.source,
        names: certificate.names,
        expires_at: certificate.expires_at.map(date),
        problem: certificate.problem,
        next_attempt_at: certificate.next_attempt_at.map(date),
        reported_at: date(reported_at),
    }
}

/// The time for which a report is shown. Engines repeat it every five minutes.
const EXPIRY: SignedDuration = SignedDuration::from_mins(15);

/// Reporters whose certificates are shown, as many as a process has links.
const MAX_REPORTERS: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> EngineCertificate {
        EngineCertificate {
            source: "acme".to_owned(),
            names: vec!["engine.example".to_owned()],
            expires_at: None,
            problem: Some("rateLimited:\u{202e} too many".to_owned()),
            next_attempt_at: None,
        }
    }

    fn refused(change: impl FnOnce(&mut EngineCertificatesRecord)) -> String {
        let mut record = EngineCertificatesRecord {
            certificates: vec![certificate()],
        };
        change(&mut record);
        stored_value(record).unwrap_err().0
    }

    #[test]
    fn limits_are_checked_and_texts_are_printable() {
        let record = EngineCertificatesRecord {
            certificates: vec![certificate()],
        };
        let stored = stored_value(record).unwrap();
        assert_eq!(stored[0]["problem"], "rateLimited:  too many");
        let many = refused(|record| record.certificates = vec![certificate(); 9]);
        assert_eq!(many, "certificates");
        let source = refused(|record| record.certificates[0].source = "x".repeat(17));
        assert_eq!(source, "certificates.0.source");
        let names = refused(|record| record.certificates[0].names = vec![String::new(); 101]);
        assert_eq!(names, "certificates.0.names");
        let name = refused(|record| record.certificates[0].names = vec!["x".repeat(254)]);
        assert_eq!(name, "certificates.0.names");
        let problem = refused(|record| record.certificates[0].problem = Some("x".repeat(1_025)));
        assert_eq!(problem, "certificates.0.problem");
    }
}
