//! The message of `svc up` when everything is ready.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::local::LocalPlatform;

/// Addresses and credentials. Parts that do not exist (such as the platform of an engine without
/// one) have no field, so that readers can distinguish absent from empty.
#[derive(Serialize)]
pub(crate) struct Ready {
    /// The platform and its objects.
    #[serde(flatten)]
    pub(super) platform: Option<PlatformInfo>,
    /// Address of the engine, for agents and the Engine API.
    pub(super) engine_url: String,
    /// The metrics listener: `/metrics`, `/healthz`, `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics_url: Option<String>,
    /// The CA that signed the engine's certificate.
    pub(super) ca_file: PathBuf,
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

impl PlatformInfo {
    pub(super) fn of(platform: &LocalPlatform) -> Self {
        let password = platform.saved_state.admin_password.clone();
        Self {
            base_url: platform.base_url.clone(),
            workspace_id: platform.workspace_id.clone(),
            project_id: platform.project.id.clone(),
            project_endpoint: platform.project.endpoint.clone(),
            admin_email: platform.saved_state.admin_email.clone(),
            admin_password: password.filter(|_| platform.is_password_valid),
            turn_urls: platform.turn_urls.clone(),
            turn_realm: super::HOST.to_owned(),
            turn_allowed_peers: vec![super::relay::ALLOWED_PEERS.to_owned()],
        }
    }
}

impl Ready {
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
        let ca_file = quoted(&self.ca_file);
        row("ca_file", &ca_file);
        row("data_dir", &quoted(data));
        row("token", &self.token);
        lines.push(String::new());
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
        lines.join("\n")
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

    fn ready() -> Ready {
        Ready {
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
            ca_file: "/srv/ada/my data/ca.pem".into(),
            token: "a.b.c".to_owned(),
            demo_url: Some("https://demo.t.engine.localhost:8443".to_owned()),
            pid: 42,
        }
    }

    fn community() -> Ready {
        Ready {
            platform: None,
            demo_url: None,
            ..ready()
        }
    }

    #[test]
    fn people_get_what_there_is_and_what_to_do_next() {
        let data = Path::new("/srv/ada/my data");
        insta::assert_snapshot!(ready().panel(data));
        insta::assert_snapshot!(community().panel(data));
    }

    #[test]
    fn programs_get_one_line_without_what_does_not_exist() {
        insta::assert_snapshot!(serde_json::to_string(&ready()).unwrap());
        insta::assert_snapshot!(serde_json::to_string(&community()).unwrap());
    }
}
