//! Labels of a tunnel that describe the terminals behind it. Clients find servers by them, without
//! a record of the platform (WT-1).

use std::collections::BTreeMap;

/// Transport of the connections to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP/1.1, then a WebSocket.
    WebSocket,
    /// Messages prefixed with their length.
    Plain,
}

/// Description of a server.
#[derive(Clone, Debug)]
pub struct ServerDescription {
    /// Transport of its streams.
    pub transport: Transport,
    /// True if commands run with the environment of a login.
    pub is_login: bool,
    /// True if sessions are end-to-end encrypted.
    pub is_sealed: bool,
    /// Id of the key to which clients seal, base64url.
    pub host_key_id: Option<String>,
    /// The served files, if there are any.
    pub files: Option<FilesOffer>,
    /// The registered server, if it is one.
    pub registered: Option<Registration>,
    /// Labels from its operator.
    pub labels: BTreeMap<String, String>,
}

/// Served files.
#[derive(Clone, Copy, Debug)]
pub struct FilesOffer {
    /// True if the files are read-only.
    pub read_only: bool,
}

/// A registered server.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Id of its record.
    pub id: String,
    /// Name of the server.
    pub name: String,
    /// `disabled`, `explicit_key` or `workspace_managed`.
    pub encryption_policy: String,
}

/// Label with which a tunnel of another protocol marks a terminal server.
pub const APPLICATION: (&str, &str) = ("application-protocol", "svc.webtty");

/// Path of the files on a terminal server.
pub const FILES_PATH: &str = "/fs";

/// All labels of a tunnel to this host.
pub fn labels(offer: &ServerDescription, host: &Host) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut put = |key: &str, value: &str| {
        all.insert(format!("svc.webtty.{key}"), value.to_owned());
    };
    let capabilities = if offer.files.is_some() {
        "exec,fs"
    } else {
        "exec"
    };
    put("capabilities", capabilities);
    put("exec.path", "/");
    if let Some(files) = offer.files {
        put("fs.path", FILES_PATH);
        let mode = if files.read_only {
            "read-only"
        } else {
            "read-write"
        };
        put("fs.mode", mode);
        put("fs.backend", "webdav");
    }
    put(
        "transport",
        match offer.transport {
            Transport::Plain => "plain",
            Transport::WebSocket => "websocket",
        },
    );
    put(
        "execution.mode",
        if offer.is_login { "login" } else { "spawn" },
    );
    let (e2e, proof) = if offer.is_sealed {
        ("required", "required")
    } else {
        ("disabled", "none")
    };
    put("e2e", e2e);
    put("client_proof", proof);
    let policy = match &offer.registered {
        Some(registered) => registered.encryption_policy.as_str(),
        None if offer.is_sealed => "explicit_key",
        None => "disabled",
    };
    put("encryption_policy", policy);
    if let Some(id) = &offer.host_key_id {
        put("host_key_id", id);
    }
    if let Some(registered) = &offer.registered {
        put("server_id", &registered.id);
        put("server_name", &registered.name);
    }
    for (key, value) in &host.facts {
        put(key, value);
    }
    for (key, value) in &offer.labels {
        put(&format!("label.{key}"), value);
    }
    if offer.registered.is_none() {
        let (key, value) = APPLICATION;
        all.insert(key.to_owned(), value.to_owned());
    }
    all
}

/// Facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    facts: Vec<(&'static str, String)>,
}

impl Host {
    /// Facts about this host.
    pub fn local() -> Self {
        let release = ["/etc/os-release", "/usr/lib/os-release"]
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok())
            .unwrap_or_default();
        let mut host = Self::of_release(&release);
        host.put("os_family", std::env::consts::OS);
        host.put("arch", std::env::consts::ARCH);
        #[cfg(unix)]
        if let Some((name, kernel)) = pty::host() {
            host.put("hostname", &name);
            host.put("kernel_release", &kernel);
        }
        host
    }

    /// Parses the facts of os-release(5).
    fn of_release(text: &str) -> Self {
        let mut host = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            let known = RELEASE.iter().find(|(theirs, _)| *theirs == name.trim());
            if let Some((_, ours)) = known {
                host.put(ours, &unquoted(value));
            }
        }
        host
    }

    /// Adds a fact without control characters and up to a maximum length, as labels require.
    fn put(&mut self, key: &'static str, value: &str) {
        let value: String = value
            .chars()
            .filter(|c| !c.is_control())
            .take(MAX_FACT)
            .collect();
        if !value.is_empty() {
            self.facts.push((key, value));
        }
    }
}

/// The value of a shell assignment, without quotes and escaping backslashes.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    let quoted = ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    let mut characters = quoted.unwrap_or(value).chars();
    let mut plain = String::new();
    while let Some(c) = characters.next() {
        let next = if c == '\\' {
            characters.next()
        } else {
            Some(c)
        };
        plain.extend(next);
    }
    plain
}

const RELEASE: [(&str, &str); 4] = [
    ("ID", "os_id"),
    ("VERSION_ID", "os_version_id"),
    ("VERSION_CODENAME", "os_version_codename"),
    ("PRETTY_NAME", "os_pretty_name"),
];

/// Maximum length of a fact that people read in a list.
const MAX_FACT: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> ServerDescription {
        ServerDescription {
            transport: Transport::WebSocket,
            is_login: false,
            is_sealed: false,
            host_key_id: None,
            files: None,
            registered: None,
            labels: BTreeMap::new(),
        }
    }

    /// WT-1: the inventory of tunnels contains all that a client needs to find a server.
    #[test]
    fn a_lightweight_server_is_found_by_its_labels() {
        let host = Host::of_release(
            "ID=debian\nVERSION_ID=\"13\"\nPRETTY_NAME='A \\'B\\''\nOTHER=x\nVERSION_CODENAME=\n# no\n",
        );
        let mut wanted = offer();
        wanted.files = Some(FilesOffer { read_only: true });
        wanted.labels.insert("team".into(), "core".into());
        let all = labels(&wanted, &host);
        let expected = [
            ("application-protocol", "svc.webtty"),
            ("svc.webtty.capabilities", "exec,fs"),
            ("svc.webtty.client_proof", "none"),
            ("svc.webtty.e2e", "disabled"),
            ("svc.webtty.encryption_policy", "disabled"),
            ("svc.webtty.exec.path", "/"),
            ("svc.webtty.execution.mode", "spawn"),
            ("svc.webtty.fs.backend", "webdav"),
            ("svc.webtty.fs.mode", "read-only"),
            ("svc.webtty.fs.path", "/fs"),
            ("svc.webtty.label.team", "core"),
            ("svc.webtty.os_id", "debian"),
            ("svc.webtty.os_pretty_name", "A 'B'"),
            ("svc.webtty.os_version_id", "13"),
            ("svc.webtty.transport", "websocket"),
        ];
        assert_eq!(
            all.iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn a_registered_server_has_its_id_in_its_labels() {
        let mut wanted = offer();
        wanted.transport = Transport::Plain;
        wanted.is_sealed = true;
        wanted.registered = Some(Registration {
            id: "wsv_1".into(),
            name: "build".into(),
            encryption_policy: "explicit_key".into(),
        });
        let all = labels(&wanted, &Host::local());
        assert_eq!(all["svc.webtty.server_id"], "wsv_1");
        assert_eq!(all["svc.webtty.transport"], "plain");
        assert_eq!(all["svc.webtty.client_proof"], "required");
        assert!(!all.contains_key("application-protocol"));
        assert!(all.contains_key("svc.webtty.hostname"));
        types::client::check_labels(&all.into_iter().collect()).unwrap();
    }
}
