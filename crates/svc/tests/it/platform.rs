//! `svc platform`.

use serde_json::Value;

use crate::program::{Home, within_soon};

fn configuration(home: &Home, port: u16) {
    let data = home.path().join("data");
    let yaml = format!(
        "platform:\n  base_url: http://localhost:{port}\n  listen_addr: 127.0.0.1:{port}\n  \
         data_dir: {}\n",
        data.display()
    );
    std::fs::write(home.path().join("platform.yaml"), yaml).unwrap();
}
