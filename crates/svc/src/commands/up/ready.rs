//! What `svc up` says when all is ready.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// Where everything is. What this version does not have yet (a control plane, its user, its
/// project, TURN) has no field: a reader can tell absent from empty.
#[derive(Serialize)]
pub(crate) struct Ready {
    /// The engine: agents and the Engine API.
    pub(crate) engine_url: String,
    /// The metrics listener: `/metrics`, `/healthz`, `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_url: Option<String>,
    /// The CA that signed the engine's certificate.
    pub(crate) ca_file: PathBuf,
    /// A token with every permission.
    pub(crate) token: String,
    /// The demo, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) demo_url: Option<String>,
    /// This process.
    pub(crate) pid: u32,
}

impl Ready {
    /// For people: what there is, then what to do next, ready to be copied.
    pub(crate) fn panel(&self, data: &Path) -> String {
        let mut lines = vec!["svc is up.".to_owned(), String::new()];
        let mut row = |name: &str, value: &str| lines.push(format!("  {name:<13}{value}"));
        if let Some(url) = &self.demo_url {
            row("demo_url", url);
        }
        row("engine_url", &self.engine_url);
        if let Some(url) = &self.metrics_url {
            row("metrics_url", url);
        }
        let ca_file = quoted(&self.ca_file);
        row("ca_file", &ca_file);
        row("data_dir", &quoted(data));
        row("token", &self.token);
        lines.push(String::new());
        if let Some(url) = &self.demo_url {
            lines.push(
                "Visit the demo, or open it in a browser (import ca_file there first):".to_owned(),
            );
            lines.push(format!("  curl --cacert {ca_file} {url}/"));
            lines.push(String::new());
        }
        lines.push("In a second terminal, while this one runs:".to_owned());
        lines.push("  svc events                      # what happens, live".to_owned());
        lines.push("  svc tunnels                     # what is published now".to_owned());
        lines.push(
            "  svc forward 3000 --name web     # publish your own service on port 3000".to_owned(),
        );
        lines.push(String::new());
        lines.push("Ctrl-C stops it in order, a second one at once.".to_owned());
        lines.join("\n")
    }
}

/// As a shell takes it.
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
            engine_url: "https://engine.localhost:8443".to_owned(),
            metrics_url: Some("http://127.0.0.1:8444".to_owned()),
            ca_file: "/srv/ada/my data/ca.pem".into(),
            token: "a.b.c".to_owned(),
            demo_url: Some("https://demo.t.engine.localhost:8443".to_owned()),
            pid: 42,
        }
    }

    #[test]
    fn people_get_what_there_is_and_what_to_do_next() {
        insta::assert_snapshot!(ready().panel(Path::new("/srv/ada/my data")));
    }

    #[test]
    fn programs_get_one_line_without_what_does_not_exist() {
        insta::assert_snapshot!(serde_json::to_string(&ready()).unwrap());
    }
}
