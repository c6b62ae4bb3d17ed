//! A running `svc up`, on ports of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::program::{Ended, Home, Running};

/// The process and what it said.
pub(crate) struct Up {
    pub(crate) running: Running,
    pub(crate) ready: Value,
}

impl Up {
    /// A field of what it said.
    pub(crate) fn said(&self, key: &str) -> &str {
        self.ready[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {}", self.ready))
    }

    pub(crate) async fn stop(self) -> Ended {
        let ended = self.running.terminate().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    }
}

/// Platform and engine.
pub(crate) async fn up(home: &Home, more: &[&str]) -> Up {
    // Engines share their listening ports among their threads, and would share those of another
    // engine of this user too: each has its own.
    let base = free_port();
    let tcp_ports = format!("{base}-{}", base.saturating_add(9));
    let own = [
        "up",
        "--port",
        "0",
        "--tcp-ports",
        &tcp_ports,
        "--output",
        "json",
    ];
    let args = [&own, more].concat();
    let mut running = home.start(&args);
    let ready = running.json().await;
    Up { running, ready }
}

/// An engine alone.
pub(crate) async fn alone(home: &Home, more: &[&str]) -> Up {
    up(home, &[&["--community"], more].concat()).await
}

/// An engine alone, on the port that another one had.
pub(crate) async fn alone_at(home: &Home, port: &str) -> Up {
    let base = free_port();
    let tcp_ports = format!("{base}-{}", base.saturating_add(9));
    let args = [
        "up",
        "--community",
        "--port",
        port,
        "--metrics-port",
        "0",
        "--tcp-ports",
        &tcp_ports,
        "-o",
        "json",
    ];
    let mut running = home.start(&args);
    let ready = running.json().await;
    Up { running, ready }
}

/// The secret that signs tokens for the engine of this home.
pub(crate) fn secret(home: &Home) -> String {
    let file = home.path().join(".local/share/svc/jwt.secret");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// A port that stays free, with nine after it: below those that the system gives to who asks for any,
/// and others for each who asks here.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let asked = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = (std::process::id() % 800 + asked) * 10 % 8_000;
        let port = 11_000 + u16::try_from(number).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
