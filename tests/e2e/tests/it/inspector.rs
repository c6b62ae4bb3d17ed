//! The inspector in Chromium, with tunnels that visitors use.

use anyhow::{Context as _, Result};
use e2e::{Agent, Peer, Platform};
use serde_json::{Value, json};

#[test]
fn a_developer_sees_replays_and_saves_requests_of_visitors() -> Result<()> {
    let platform = Platform::up()?;
    let service = Peer::start("inspected_service.mjs")?;
    let web = platform.forward(service.address()?, &["--name", "shop", "--inspect=0"])?;
    let h2c = service.ready()["h2c"].as_str().context("no h2c")?;
    let args = ["--name", "calls", "--http-version", "h2c", "--inspect=0"];
    let calls = platform.forward(h2c, &args)?;
    let secure = service.ready()["secure"].as_str().context("no TLS")?;
    let secure = platform.forward(secure, &["--name", "secure", "--inspect=0"])?;
    let given = json!({
        "web": addresses(&web), "calls": addresses(&calls), "secure": addresses(&secure),
    });
    platform.node_with("inspector.mjs", given)?;
    Ok(())
}

fn addresses(agent: &Agent) -> Value {
    let online = agent.online();
    json!({"forwarding": online["forwarding"], "inspector": online["inspector"]})
}
