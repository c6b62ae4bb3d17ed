//! Reserved TCP addresses in a real browser.

use serde_json::{Value, json};

use crate::chromium::Site;
use crate::support::{PASSWORD, Project};

const DOMAIN: &str = "engine.example";

/// Two projects of different workspaces share a range of two ports, which is also the limit of their
/// plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_are_reserved_and_released_until_a_limit_is_reached_in_chromium() {
    let engines = json!([{"cluster_domain": DOMAIN, "tcp_ports": "20000-20001"}]);
    let plans = json!({"plans": [{"plan": "basic", "tcp_addresses": 2}]});
    let site = Box::pin(Site::start_beside(&engines, &format!("catalog: {plans}\n"))).await;
    let (ada, eve) = (site.person("Ada").await, site.person("Eve").await);
    let (hers, other) = (site.project(&ada).await, site.project(&eve).await);
    let given = json!({
        "password": PASSWORD,
        "owner": of("ada@example.com", &hers),
        "other": of("eve@example.com", &other),
        "domain": DOMAIN,
        "ports": [20_000, 20_001],
    });
    site.run("reserved_ports.mjs", given).await;
}

fn of(email: &str, project: &Project) -> Value {
    json!({"email": email, "project": project.id.as_str()})
}
