//! The certificates of a public server on this machine, for `svc doctor`.

use std::path::Path;

use serde_json::Value;

use super::dns::NameServers;
use super::files::Layout;
use super::options::Authority;
use super::progress::IssuedNames;
use super::records::{ChallengeRecords, WantedRecords};
use crate::failure::Failure;

/// The certificates of a public server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateReport {
    /// One line for each certificate.
    pub(crate) issued: Vec<String>,
    /// The last failures, with the text of the authority.
    pub(crate) problems: Vec<String>,
    /// Changes without which the authority refuses an order.
    pub(crate) changes: Vec<String>,
    /// CAA records that allow only the accounts of this server, if none does yet.
    pub(crate) suggestions: Vec<String>,
}

/// The certificates of the `svc up --public` with this data directory; `None` if it is a local one.
pub(crate) async fn report(data: &Path) -> Option<CertificateReport> {
    let file = std::fs::read(data.join("engine.yaml")).ok()?;
    let servers = NameServers::new(None);
    report_of(data, &serde_json::from_slice(&file).ok()?, servers).await
}

async fn report_of(
    data: &Path,
    file: &Value,
    servers: Result<NameServers, Failure>,
) -> Option<CertificateReport> {
    let host = file.pointer("/engine/host")?.as_str()?;
    let directory = file.pointer("/certs/acme/directory")?.as_str()?;
    let layout = Layout::new(data);
    let mut report = CertificateReport::default();
    for certificate in IssuedNames::of_server(host, &layout, directory) {
        if let Some(info) = certificate.info() {
            let names = info.names.join(", ");
            report
                .issued
                .push(format!("{names} until {}", info.expires_at));
        }
        report.problems.extend(certificate.problem());
    }
    let authority = Authority {
        directory: directory.to_owned(),
        ca_file: None,
        is_staging: false,
    };
    let wanted = WantedRecords {
        host: host.to_owned(),
        addresses: Vec::new(),
        challenges: ChallengeRecords::Elsewhere,
        authority: authority.caa_name(),
        accounts: layout.accounts(),
    };
    let caa = match (wanted.authority, servers) {
        (Some(_), Ok(servers)) => servers.caa(host).await,
        _ => None,
    };
    let is_restricted = match &caa {
        Some((name, properties)) => {
            let changes = wanted.caa_changes(name, properties);
            report.changes = changes.iter().map(ToString::to_string).collect();
            WantedRecords::is_restricted(properties)
        }
        None => false,
    };
    if !is_restricted {
        let suggestions = wanted.suggestions();
        report.suggestions = suggestions.iter().map(ToString::to_string).collect();
    }
    Some(report)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// No name server is asked for an authority whose name is not known.
    #[tokio::test]
    async fn the_last_failure_of_each_part_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        std::fs::create_dir_all(&layout.platform).unwrap();
        std::fs::write(layout.platform.join("problem.txt"), "rateLimited: wait").unwrap();
        let file = json!({
            "engine": {"host": "engine.example.com"},
            "certs": {"acme": {"directory": "https://ca.example/directory"}},
        });
        let servers = NameServers::new(None);
        let report = report_of(directory.path(), &file, servers).await.unwrap();
        assert!(report.issued.is_empty());
        assert_eq!(
            report.problems,
            ["platform.engine.example.com: rateLimited: wait"]
        );
        let local = json!({"engine": {"host": "engine.localhost"}});
        let none = report_of(directory.path(), &local, NameServers::new(None)).await;
        assert_eq!(none, None);
    }
}
