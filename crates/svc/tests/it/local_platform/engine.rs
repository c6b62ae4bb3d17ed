//! `svc engine` with a platform: `--check`, and the log of an engine that has lost its platform.

use serde_json::Value;

use crate::program::{CommandOutput, Home};

/// A platform with TLS, and the files of an engine for it.
struct Files {
    home: Home,
    /// The platform's address.
    url: String,
}

impl Files {
    fn new() -> Self {
        let home = Home::new();
        let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
        let certificate = |file: &str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            write(&format!("{file}.pem"), &made.cert.pem());
            write(
                &format!("{file}.key.pem"),
                &made.signing_key.serialize_pem(),
            );
        };
        certificate("platform", &["localhost"]);
        certificate("other", &["localhost"]);
        let names = ["engine.test", "*.engine.test", "*.t.engine.test"];
        certificate("engine", &names);
        write("secret", "an-enrolment-secret-of-this-cluster\n");
        write("other-secret", "an-enrolment-secret-of-another-one\n");
        let address = ports::lease_address();
        let url = address.replace("127.0.0.1", "https://localhost");
        write(
            "platform.yaml",
            &format!(
                "platform: {{base_url: '{url}', listen_addr: '{address}', data_dir: data, \
                 drain_seconds: 0}}\n\
                 tls: {{cert_file: platform.pem, key_file: platform.key.pem}}\n\
                 engines: [{{cluster_domain: engine.test, enrolment_secret_file: secret}}]\n"
            ),
        );
        Self { home, url }
    }

    /// Writes the configuration of an engine with this platform.
    fn engine(&self, url: &str, secret: &str, authorities: &str) {
        let text = format!(
            "engine: {{host: engine.test}}\n\
             tls: {{listen_addr: '127.0.0.1:0'}}\n\
             certs: {{static: {{cert_file: engine.pem, key_file: engine.key.pem}}}}\n\
             control_plane: {{url: '{url}', token_file: {secret}, ca_file: {authorities}.pem, \
             data_dir: state}}\n"
        );
        std::fs::write(self.home.path().join("engine.yaml"), text).unwrap();
    }

    async fn check(&self) -> CommandOutput {
        let args = ["engine", "-c", "engine.yaml", "--check"];
        self.home.run(&args).await
    }
}

#[tokio::test]
async fn a_check_tries_the_platform_once_and_reports_the_cause() {
    let files = Files::new();
    let args = ["platform", "-c", "platform.yaml", "-o", "json"];
    let mut platform = files.home.start(&args);
    platform.json().await;
    files.engine(&files.url, "secret", "platform");
    let good = files.check().await;
    assert_eq!(good.code, Some(0), "{good:?}");
    assert_eq!(good.stdout, "the configuration is valid\n");
    assert_eq!(good.stderr, "");

    let closed = format!("https://localhost:{}", ports::lease());
    let url = files.url.as_str();
    for (url, secret, authorities, warning) in [
        (
            closed.as_str(),
            "secret",
            "platform",
            "control_plane.url: cannot reach the platform at https://localhost:",
        ),
        (
            "https://nobody.invalid",
            "secret",
            "platform",
            "control_plane.url: cannot reach the platform at https://nobody.invalid: ",
        ),
        (
            url,
            "secret",
            "other",
            &format!(
                "control_plane.url: cannot reach the platform at {url}: its certificate is signed \
                 by a CA that is not trusted here\n"
            ),
        ),
        (
            url,
            "other-secret",
            "platform",
            "control_plane.token_file: the platform refuses the enrolment secret (401 \
             Unauthorized)\n",
        ),
    ] {
        files.engine(url, secret, authorities);
        let checked = files.check().await;
        // An engine starts without its platform.
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let start = format!("warning: {warning}");
        assert!(checked.stderr.starts_with(&start), "{checked:?}");
        let cause = match url {
            "https://nobody.invalid" => "dns error",
            url if url == closed => "Connection refused",
            _ => "",
        };
        assert!(checked.stderr.contains(cause), "{checked:?}");
        assert_eq!(checked.stderr.lines().count(), 1, "{checked:?}");
    }
    // A check is not a link.
    let ended = platform.terminate().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("an engine connected"), "{ended:?}");
}

#[tokio::test]
async fn the_log_shows_why_an_engine_has_lost_its_platform() {
    let files = Files::new();
    let args = ["platform", "-c", "platform.yaml", "-o", "json"];
    let mut platform = files.home.start(&args);
    platform.json().await;
    let closed = format!("https://localhost:{}", ports::lease());
    let url = files.url.as_str();
    let mut reasons = Vec::new();
    for (url, authorities, cause) in [
        (closed.as_str(), "platform", "Connection refused"),
        ("https://nobody.invalid", "platform", "dns error"),
        (url, "other", "certificate"),
    ] {
        files.engine(url, "secret", authorities);
        let mut engine = files.home.start(&["engine", "-c", "engine.yaml"]);
        let message = "the connection to the platform is lost";
        // The last member of the line.
        let log = engine.wait_for_stderr(r#""target":"link::follow""#).await;
        assert_eq!(engine.terminate().await.code, Some(0));
        let line = log.lines().find(|line| line.contains(message)).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let reason = line["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(cause), "{reason}");
        reasons.push(reason);
    }
    reasons.dedup();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert_eq!(platform.terminate().await.code, Some(0));
}

#[tokio::test]
async fn a_check_reports_all_errors_of_an_engine_together() {
    let home = Home::new();
    let text = "engine:
  host: https://tunnel.example.com
  log_level: loud
tls:
  listen_addr: '443'
certs:
  static:
    cert_file: none.pem
    key_file: none.key.pem
auth:
  jwt:
    token_jwt_secrt: 0123456789abcdef-0123456789abcdef
    public_keys: [none.pub, '']
timeouts:
  http_idle_seconds: 9999
  drain_seconds: many
limits:
  max_clients: 0
  max_tunnels: -1
edge:
  trusted_proxies: [10.0.0.0/8, x]
";
    std::fs::write(home.path().join("engine.yaml"), text).unwrap();
    let args = ["engine", "-c", "engine.yaml", "--check"];
    let wrong = home.run(&args).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert_eq!(wrong.stdout, "");
    let starts = [
        "2:9: engine.host: ",
        "3:14: engine.log_level: unknown variant `loud`",
        "5:16: tls.listen_addr: ",
        "8:16: certs.static.cert_file: none.pem",
        "12:5: auth.jwt.token_jwt_secrt: unknown key; the nearest known one is ",
        "13:19: auth.jwt.public_keys.0: none.pub cannot be read: ",
        "13:29: auth.jwt.public_keys.1: a path must not be empty",
        "15:22: timeouts.http_idle_seconds: 9999 is not between ",
        "16:18: timeouts.drain_seconds: expected a whole number, found a text",
        "18:16: limits.max_clients: 0 is not between ",
        "19:16: limits.max_tunnels: ",
        "21:33: edge.trusted_proxies.1: ",
    ];
    let lines: Vec<_> = wrong.stderr.lines().collect();
    for (line, start) in lines.iter().zip(starts) {
        let start = format!("error[usage]: engine.yaml:{start}");
        assert!(line.starts_with(&start), "{start}: {wrong:?}");
    }
    assert_eq!(lines.len(), starts.len() + 1, "{wrong:?}");
    assert_eq!(
        lines.last(),
        Some(&"hint: `svc engine --schema` describes every key")
    );

    // The same errors in JSON, one per line, and at a start.
    let mut command = home.command(&args[..3]);
    command.args(["-o", "json"]).env("SVC_HTTP__ENABLED", "on");
    let json = CommandOutput::of_command(command).await;
    assert_eq!(json.code, Some(2), "{json:?}");
    let failures: Vec<Value> = json
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(failures.len(), wrong.stderr.lines().count(), "{json:?}");
    assert!(failures.iter().all(|one| one["error"]["code"] == "usage"));
    let first = failures[0]["error"]["message"].as_str().unwrap();
    assert!(first.starts_with("SVC_HTTP__ENABLED: http.enabled: "));
}
