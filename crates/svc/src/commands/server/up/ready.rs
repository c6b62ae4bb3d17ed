//! The message of `svc up` when everything is ready.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::local::LocalPlatform;

/// Addresses and credentials. Parts that do not exist (such as the platform of an engine without
/// one) have no field, so that readers can distinguish absent from empty.
#[derive(Serialize)]
pub(crate) struct ReadyReport {
    /// The platform and its objects.
    #[serde(flatten)]
    pub(super) platform: Option<PlatformInfo>,
    /// Address of the engine, for agents and the Engine API.
    pub(super) engine_url: String,
    /// The metrics listener: `/metrics`, `/healthz`, `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics_url: Option<String>,
    /// The public server, if this is one.
    #[serde(flatten)]
    pub(super) public: Option<PublicInfo>,
    /// The CA that signed the engine's certificate, if it is not a public one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca_file: Option<PathBuf>,
    /// A token with every permission.
    pub(super) token: String,
    /// Address of the demo, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) demo_url: Option<String>,
    /// Id of this process.
    pub(super) pid: u32,
}

/// The fields of the platform.
#[derive(Serialize)]
pub(super) struct PlatformInfo {
    /// Public URL of the platform.
    base_url: String,
    /// The administrator's workspace.
    workspace_id: String,
    /// The first project of the workspace.
    project_id: String,
    /// Endpoint of the project.
    project_endpoint: String,
    /// Email address of the administrator's login.
    admin_email: String,
    /// Password of the administrator. Omitted after it was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_password: Option<String>,
    /// URLs of the relay in TURN credentials.
    turn_urls: Vec<String>,
    /// The realm of TURN credentials.
    turn_realm: String,
    /// Peers that the relay allows in addition to the public internet, for testing.
    turn_allowed_peers: Vec<String>,
}

/// The fields of a public server.
#[derive(Serialize)]
pub(super) struct PublicInfo {
    /// Public URL of the platform.
    pub(super) platform_url: String,
    /// The certificates, and their ends.
    pub(super) certificates: Vec<CertificateInfo>,
    /// CAA records that allow only the accounts of this server to order certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) caa_suggestions: Vec<String>,
}

/// A certificate from the authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CertificateInfo {
    pub(super) names: Vec<String>,
    /// RFC 3339.
    pub(super) expires_at: String,
}

impl PlatformInfo {
    /// The fields of the local platform.
    pub(super) fn of(platform: &LocalPlatform) -> Self {
        let allowed = vec![super::relay::ALLOWED_PEERS.to_owned()];
        Self::with_relay(platform, super::HOST, allowed)
    }

    /// The fields of a platform whose relay has this realm and allows these peers.
    pub(super) fn with_relay(
        platform: &LocalPlatform,
        realm: &str,
        turn_allowed_peers: Vec<String>,
    ) -> Self {
        let password = platform.saved_state.admin_password.clone();
        Self {
            base_url: platform.base_url.clone(),
            workspace_id: platform.workspace_id.clone(),
            project_id: platform.project.id.clone(),
            project_endpoint: platform.project.endpoint.clone(),
            admin_email: platform.saved_state.admin_email.clone(),
            admin_password: password.filter(|_| platform.is_password_valid),
            turn_urls: platform.turn_urls.clone(),
            turn_realm: realm.to_owned(),
            turn_allowed_peers,
        }
    }
}

impl ReadyReport {
    /// The text for users: addresses, login, and the next commands to copy.
    pub(crate) fn panel(&self, data: &Path) -> String {
        let mut lines = vec!["svc is up.".to_owned(), String::new()];
        let mut row = |name: &str, value: &str| lines.push(format!("  {name:<18}{value}"));
        if let Some(url) = &self.demo_url {
            row("demo_url", url);
        }
        if let Some(platform) = &self.platform {
            row("base_url", &platform.base_url);
            row("admin_email", &platform.admin_email);
            let changed = "(the one you chose)";
            row(
                "admin_password",
                platform.admin_password.as_deref().unwrap_or(changed),
            );
            row("workspace_id", &platform.workspace_id);
            row("project_id", &platform.project_id);
            row("project_endpoint", &platform.project_endpoint);
        }
        row("engine_url", &self.engine_url);
        if let Some(url) = &self.metrics_url {
            row("metrics_url", url);
        }
        if let Some(platform) = &self.platform {
            for url in &platform.turn_urls {
                row("turn_url", url);
            }
        }
        let ca_file = self.ca_file.as_deref().map(quoted);
        if let Some(ca_file) = &ca_file {
            row("ca_file", ca_file);
        }
        for certificate in self.public.iter().flat_map(|public| &public.certificates) {
            row("certificate", &certificate.line());
        }
        row("data_dir", &quoted(data));
        row("token", &self.token);
        lines.push(String::new());
        if let Some(public) = &self.public {
            lines.extend(public.next_steps(self.demo_url.as_deref()));
        } else {
            lines.extend(self.local_steps(ca_file.as_deref().unwrap_or_default()));
        }
        lines.join("\n")
    }

    /// The commands that come next on this machine.
    fn local_steps(&self, ca_file: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(platform) = &self.platform {
            lines.push(format!(
                "Sign in at {}/login with the address and the password above.",
                platform.base_url
            ));
            lines.push("The TURN relay at turn_url reaches only peers on this machine.".into());
            lines.push(String::new());
        }
        if let Some(url) = &self.demo_url {
            lines.push(
                "Visit the demo, or open it in a browser (import ca_file there first):".to_owned(),
            );
            lines.push(format!("  curl --cacert {ca_file} {url}/"));
            lines.push(String::new());
        }
        lines.push("In a second terminal, while this one runs:".to_owned());
        lines.push(
            "  svc forward 3000 --name web     # publish your own service on port 3000".to_owned(),
        );
        lines.push("  svc events                      # live events".to_owned());
        lines.push(if self.platform.is_some() {
            "  svc project list                # the platform's projects; see `svc --help` for more"
                .to_owned()
        } else {
            "  svc tunnels                     # list published tunnels".to_owned()
        });
        lines.push(String::new());
        lines.push("Ctrl-C shuts it down cleanly; press it again to stop immediately.".to_owned());
        lines
    }
}

impl PublicInfo {
    /// The commands that come next.
    fn next_steps(&self, demo_url: Option<&str>) -> Vec<String> {
        let Self { platform_url, .. } = self;
        let mut lines = vec![format!(
            "Sign in at {platform_url}/login with the address and the password above, and change \
             the password."
        )];
        lines.extend(demo_url.map(|url| format!("Visit the demo at {url}/")));
        lines.push("On your own computer:".to_owned());
        lines.push(format!("  svc login --api-url {platform_url}"));
        lines.push(
            "  svc forward 3000 --name web     # publish your own service on port 3000".to_owned(),
        );
        if !self.caa_suggestions.is_empty() {
            lines.push(String::new());
            lines.push("With these records only this server can obtain certificates:".to_owned());
            lines.extend(
                self.caa_suggestions
                    .iter()
                    .map(|record| format!("  {record}")),
            );
        }
        lines
    }
}

impl CertificateInfo {
    fn line(&self) -> String {
        format!("{} until {}", self.names.join(", "), self.expires_at)
    }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '~');
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> ReadyReport {
        ReadyReport {
            platform: Some(PlatformInfo {
                base_url: "http://localhost:8445".to_owned(),
                workspace_id: "wks_01h455vb4pex5vsknk084sn02q".to_owned(),
                project_id: "prj_01h455vb4pex5vsknk084sn02q".to_owned(),
                project_endpoint: "e7e8a732".to_owned(),
                admin_email: "admin@localhost".to_owned(),
                admin_password: Some("correct-horse-battery".to_owned()),
                turn_urls: vec!["turn:127.0.0.1:8446?transport=udp".to_owned()],
                turn_realm: "engine.localhost".to_owned(),
                turn_allowed_peers: vec!["127.0.0.0/8".to_owned()],
            }),
            engine_url: "https://engine.localhost:8443".to_owned(),
            metrics_url: Some("http://127.0.0.1:8444".to_owned()),
            public: None,
            ca_file: Some("/srv/ada/my data/ca.pem".into()),
            token: "a.b.c".to_owned(),
            demo_url: Some("https://demo.t.engine.localhost:8443".to_owned()),
            pid: 42,
        }
    }

    fn community() -> ReadyReport {
        ReadyReport {
            platform: None,
            demo_url: None,
            ..ready()
        }
    }

    fn public() -> ReadyReport {
        let mut ready = ready();
        ready.engine_url = "https://engine.example.com".to_owned();
        ready.demo_url = Some("https://demo.t.engine.example.com".to_owned());
        ready.ca_file = None;
        if let Some(platform) = &mut ready.platform {
            platform.base_url = "https://platform.engine.example.com".to_owned();
            platform.admin_email = "ada@example.com".to_owned();
            platform.turn_urls = vec!["turns:turn.engine.example.com:5349".to_owned()];
            platform.turn_realm = "engine.example.com".to_owned();
            platform.turn_allowed_peers = Vec::new();
        }
        ready.public = Some(PublicInfo {
            platform_url: "https://platform.engine.example.com".to_owned(),
            certificates: vec![CertificateInfo {
                names: vec![
                    "engine.example.com".to_owned(),
                    "*.t.engine.example.com".to_owned(),
                ],
                expires_at: "2026-06-01T00:00:00Z".to_owned(),
            }],
            caa_suggestions: vec![
                "engine.example.com. CAA 0 issue \"letsencrypt.org; \
                 accounturi=https://acme.example/acct/1\""
                    .to_owned(),
            ],
        });
        ready
    }

    #[test]
    fn a_public_server_is_used_from_another_computer() {
        let panel = public().panel(Path::new("/var/lib/svc"));
        for part in [
            "svc login --api-url https://platform.engine.example.com",
            "Visit the demo at https://demo.t.engine.example.com/",
            "engine.example.com, *.t.engine.example.com until 2026-06-01T00:00:00Z",
            "accounturi=https://acme.example/acct/1",
        ] {
            assert!(panel.contains(part), "{part}: {panel}");
        }
        assert!(
            !panel.contains("ca_file"),
            "its certificate is public: {panel}"
        );
        let line = serde_json::to_value(public()).unwrap();
        assert_eq!(line["platform_url"], "https://platform.engine.example.com");
        assert_eq!(line["certificates"][0]["names"][0], "engine.example.com");
        assert!(line.get("ca_file").is_none());
    }

    #[test]
    fn people_get_the_facts_and_the_next_step() {
        let data = Path::new("/srv/ada/my data");
        insta::assert_snapshot!(ready().panel(data));
        insta::assert_snapshot!(community().panel(data));
    }

    #[test]
    fn programs_get_one_line_without_absent_fields() {
        insta::assert_snapshot!(serde_json::to_string(&ready()).unwrap());
        insta::assert_snapshot!(serde_json::to_string(&community()).unwrap());
    }
}
