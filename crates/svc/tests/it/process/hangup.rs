//! SIGHUP, which the rotation of logs sends, does not end a server.

use std::net::SocketAddr;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::program::{Home, soon};

/// Files of a certificate for the engine's names.
fn certificate(home: &Home) {
    let names = ["engine.test".to_owned(), "*.t.engine.test".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(home.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(
        home.path().join("key.pem"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
}

/// Writes the configuration of an engine with free ports.
pub(super) fn engine(home: &Home, access_log: Option<&str>) {
    certificate(home);
    let mut config = json!({
        "engine": {"host": "engine.test"},
        "tls": {"listen_addr": "127.0.0.1:0"},
        "http": {"enabled": false},
        "certs": {"static": {"cert_file": "cert.pem", "key_file": "key.pem"}},
        "auth": {"jwt": {"enabled": true, "token_jwt_secret": "a secret of more than 32 bytes for tests"}},
        "timeouts": {"startup_grace_seconds": 0},
    });
    if let Some(path) = access_log {
        config["access_log"] = json!({"path": path});
    }
    std::fs::write(home.path().join("engine.yaml"), config.to_string()).unwrap();
}

/// A rotation as in `deploy/debian/svc.logrotate`: rename, then SIGHUP.
#[tokio::test]
async fn an_engine_continues_in_a_new_access_log_after_a_rotation() {
    let home = Home::new();
    engine(&home, Some("access.log"));
    let (path, rotated) = (
        home.path().join("access.log"),
        home.path().join("access.log.1"),
    );
    let mut running = home.start(&["engine", "-c", "engine.yaml", "--output", "json"]);
    let ready = running.json().await;
    let address: SocketAddr = ready["tls_addr"].as_str().unwrap().parse().unwrap();
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .resolve("nobody.t.engine.test", address)
        .build()
        .unwrap();
    let visit = async |path: &str| {
        let url = format!("https://nobody.t.engine.test:{}{path}", address.port());
        client.get(url).send().await.unwrap().status()
    };
    assert_eq!(visit("/before").await, 404);
    // A visit is recorded after its response, so its line is waited for.
    soon("the line of the first visit", async {
        while !std::fs::read_to_string(&path).unwrap().contains("/before") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    std::fs::rename(&path, &rotated).unwrap();
    running.signal(Signal::SIGHUP);
    soon("a new access log", async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(visit("/after").await, 404);
    let ended = running.terminate().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let [before, after] = [rotated, path].map(|path| std::fs::read_to_string(path).unwrap());
    assert!(
        before.contains("/before") && !before.contains("/after"),
        "{before}"
    );
    assert!(
        after.contains("/after") && !after.contains("/before"),
        "{after}"
    );
}

/// Every server, also one that has nothing to reopen.
#[tokio::test]
async fn a_server_without_an_access_log_keeps_running() {
    let home = Home::new();
    engine(&home, None);
    let listen = ports::lease_address();
    let platform = json!({"platform": {
        "base_url": format!("http://{listen}"), "listen_addr": listen, "data_dir": "data",
        "drain_seconds": 0,
    }});
    std::fs::write(home.path().join("platform.yaml"), platform.to_string()).unwrap();
    std::fs::write(
        home.path().join("relay.secret"),
        "a secret of more than 32 bytes for tests",
    )
    .unwrap();
    let turn = json!({"turn": {
        "listen_addr": ["127.0.0.1:0"], "realm": "engine.test", "secret_file": "relay.secret",
        "allowed_peers": ["127.0.0.0/8"],
    }});
    std::fs::write(home.path().join("turn.yaml"), turn.to_string()).unwrap();
    for server in ["engine", "platform", "turn"] {
        let file = format!("{server}.yaml");
        let mut running = home.start(&[server, "-c", &file, "--output", "json"]);
        running.json().await;
        running.signal(Signal::SIGHUP);
        running.wait_for_stderr("received SIGHUP").await;
        let ended = running.terminate().await;
        assert_eq!(ended.code, Some(0), "{server}: {ended:?}");
    }
}
