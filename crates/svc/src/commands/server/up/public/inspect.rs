//! The certificates of a server on this machine, for `svc doctor`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use acme::{ChallengeKind, StoredStatus};
use engine::config::EngineConfig;
use serde_json::Value;

use super::dns::NameServers;
use super::files::Layout;
use super::options::Authority;
use super::progress::IssuedNames;
use super::records::{ChallengeRecords, OrderValidations, WantedRecords};
use crate::failure::Failure;

/// The certificates of a server.
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
    /// Reason why the CAA records were not checked.
    pub(crate) caa_problem: Option<String>,
    /// The state directory, if this user may not read it. Then nothing else is known.
    pub(crate) unreadable: Option<PathBuf>,
}

/// The certificates of the `svc up --public` with this data directory; `None` if it is a local one.
pub(crate) async fn report(data: &Path) -> Option<CertificateReport> {
    let file = std::fs::read(data.join("engine.yaml")).ok()?;
    let servers = NameServers::new(None);
    report_of(data, &serde_json::from_slice(&file).ok()?, servers).await
}

/// The certificates of the engine with this configuration; `None` if it orders none.
pub(crate) async fn report_of_engine(config: &EngineConfig) -> Option<CertificateReport> {
    let settings = config.acme.as_ref()?;
    let directory = &settings.directory;
    let mut report = CertificateReport::default();
    // It belongs to the engine, and its files count as absent for other users.
    let listed = std::fs::read_dir(&settings.state_dir);
    if listed.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        report.unreadable = Some(settings.state_dir.clone());
        return Some(report);
    }
    report.add(&IssuedNames::new(
        settings.names.clone(),
        directory,
        &settings.state_dir,
    ));
    let ordered = config
        .domains
        .iter()
        .filter(|domain| domain.certificate.is_none());
    let failed = ordered.filter_map(|domain| {
        let name = domain.name.as_str();
        let state_dir = acme::domain_state_dir(&settings.state_dir, name);
        IssuedNames::new(vec![name.to_owned()], directory, &state_dir).problem()
    });
    report.problems.extend(failed.take(MAX_DOMAINS));
    let first = settings.challenges.first().copied();
    let wanted = WantedRecords {
        host: config.host.to_ascii_lowercase(),
        addresses: Vec::new(),
        challenges: ChallengeRecords::Elsewhere,
        authority: authority(directory).caa_name(),
        accounts: StoredStatus::read(&settings.state_dir)
            .account
            .into_iter()
            .collect(),
        validations: OrderValidations {
            host: first.unwrap_or(ChallengeKind::TlsAlpn01).name(),
            has_wildcards: settings.names.iter().any(|name| name.starts_with("*.")),
        },
    };
    report.add_caa(&wanted, NameServers::new(None)).await;
    Some(report)
}

fn authority(directory: &str) -> Authority {
    Authority {
        directory: directory.to_owned(),
        ca_file: None,
        profile: None,
        is_staging: false,
    }
}

impl CertificateReport {
    /// Adds a certificate, and the last failure of its orders.
    fn add(&mut self, certificate: &IssuedNames) {
        if let Some(info) = certificate.info() {
            let names = info.names.join(", ");
            self.issued
                .push(format!("{names} until {}", info.expires_at));
        }
        self.problems.extend(certificate.problem());
    }

    /// Adds the changes of CAA records without which the authority refuses an order, or those that
    /// allow only the accounts of the server.
    async fn add_caa(&mut self, wanted: &WantedRecords, servers: Result<NameServers, Failure>) {
        if wanted.authority.is_none() {
            let unknown = "the name of the authority in CAA records is not known";
            self.caa_problem = Some(unknown.to_owned());
            return;
        }
        let found = match servers {
            Ok(servers) => servers.caa(&wanted.host).await,
            Err(failure) => Err(failure.message().to_owned()),
        };
        let caa = match found {
            Ok(caa) => caa,
            Err(problem) => {
                self.caa_problem = Some(problem);
                return;
            }
        };
        let is_restricted = match &caa {
            Some((name, properties)) => {
                let changes = wanted.caa_changes(name, properties);
                self.changes = changes.iter().map(ToString::to_string).collect();
                WantedRecords::is_restricted(properties)
            }
            None => false,
        };
        if !is_restricted {
            let suggestions = wanted.suggestions();
            self.suggestions = suggestions.iter().map(ToString::to_string).collect();
        }
    }
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
        report.add(&certificate);
    }
    let wanted = WantedRecords {
        host: host.to_owned(),
        addresses: Vec::new(),
        challenges: ChallengeRecords::Elsewhere,
        authority: authority(directory).caa_name(),
        accounts: layout.accounts(),
        validations: OrderValidations::PUBLIC,
    };
    report.add_caa(&wanted, servers).await;
    Some(report)
}

/// Failed domains in a report, as many as a person reads.
const MAX_DOMAINS: usize = 10;

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

    /// The authority's name is not known here either.
    #[tokio::test]
    async fn the_failures_of_an_engine_and_its_domains_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("acme");
        let file = json!({
            "engine": {"host": "Engine.example.com"},
            "tls": {"listen_addr": "127.0.0.1:0"},
            "auth": {"jwt": {"token_jwt_secret": "0123456789abcdef0123456789abcdef"}},
            "certs": {"static": {"enabled": false}, "acme": {
                "directory": "https://ca.example/directory",
                "terms_agreed": true,
                "state_dir": state,
            }},
            "domains": [{"name": "app.example.net"}, {"name": "other.example.net"}],
        });
        let path = directory.path().join("engine.yaml");
        std::fs::write(&path, file.to_string()).unwrap();
        let config = EngineConfig::load(Some(path.as_path()), []).unwrap();
        for (folder, problem) in [
            ("", "rateLimited: wait"),
            ("domains/app.example.net", "dns"),
        ] {
            let folder = state.join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("problem.txt"), problem).unwrap();
        }
        let report = report_of_engine(&config).await.unwrap();
        assert_eq!(
            report.problems,
            [
                "engine.example.com: rateLimited: wait",
                "app.example.net: dns"
            ]
        );
        assert!(report.suggestions.is_empty(), "{report:?}");
        assert!(report.caa_problem.is_some(), "{report:?}");
        assert_eq!(report.unreadable, None);
    }
}
