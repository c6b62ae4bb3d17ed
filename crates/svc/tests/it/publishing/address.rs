//! The public address of a tunnel with a name.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::installed::{alone, secret};
use crate::program::{Home, RunningCommand};
use crate::publishing::run::{applied, echo, online, replace};

/// The address of a tunnel that comes online.
async fn address(agent: &mut RunningCommand) -> String {
    let line = agent.json_where(|line| line["status"] == "online").await;
    line["forwarding"].as_str().unwrap().to_owned()
}

/// The lines of the next tunnels that come online.
async fn online_lines(agent: &mut RunningCommand, count: usize) -> Vec<Value> {
    let mut lines = Vec::new();
    while lines.len() < count {
        lines.push(agent.json_where(|line| line["status"] == "online").await);
    }
    lines
}

const OWN: &str = "https://web.t.engine.localhost:";

#[tokio::test]
async fn a_name_is_the_address_at_every_start_unless_another_identity_has_it() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = echo("").await.to_string();
    let forward = ["forward", &port, "--name", "web", "-o", "json"];
    for _ in 0..2 {
        let mut agent = home.start(&forward);
        let address = address(&mut agent).await;
        assert!(address.starts_with(OWN), "{address}");
        assert_eq!(agent.terminate().await.code, Some(0));
    }

    let secret = secret(&home);
    let mint = [
        "token", "mint", "--secret", &secret, "--type", "app", "--client", "other",
    ];
    let other = home.run(&mint).await;
    assert_eq!(other.code, Some(0), "{other:?}");
    let other = ["--token", other.stdout.trim()];
    let holder = ["forward", &port, "--hostname", "web", "-o", "json"];
    let mut holder = home.start(&[&holder[..], &other[..]].concat());
    assert!(address(&mut holder).await.starts_with(OWN));
    let mut agent = home.start(&forward);
    let elsewhere = address(&mut agent).await;
    assert!(!elsewhere.starts_with(OWN), "{elsewhere}");
    let notice = agent
        .wait_for_stderr("the address `web` is not available")
        .await;
    let host = elsewhere.trim_start_matches("https://");
    let (host, _) = host.split_once(':').unwrap();
    assert!(notice.contains(host), "{notice}");
    // A required host name is not replaced.
    let required = home
        .run(&["forward", &port, "--hostname", "web", "-o", "json"])
        .await;
    assert_eq!(required.code, Some(4), "{required:?}");
    assert_eq!(agent.terminate().await.code, Some(0));
    assert_eq!(holder.terminate().await.code, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn tunnels_of_a_file_have_the_addresses_of_their_names() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = echo("").await;
    let file = home.path().join("svc.yaml");
    // The tunnel `shop` must not get the host name that another tunnel requires.
    fs::write(
        &file,
        format!(
            "version: 1\ntunnels:\n  shop: {{target: {port}}}\n  web: {{target: {port}}}\n  \
             zoo: {{target: {port}, hostname: shop}}\n"
        ),
    )
    .unwrap();
    let mut agent = home.start(&["run", "-o", "json"]);
    let mut lines = online_lines(&mut agent, 3).await;
    lines.sort_by_key(|line| line["tunnel"].as_str().unwrap().to_owned());
    let host = |index: usize| lines[index]["hostname"].as_str().unwrap();
    assert_ne!(host(0), "shop.t.engine.localhost");
    assert_eq!(host(1), "web.t.engine.localhost");
    assert_eq!(host(2), "shop.t.engine.localhost");
    // A new name is a new address.
    replace(
        &file,
        &format!("version: 1\ntunnels:\n  web: {{target: {port}, name: site}}\n"),
    );
    let renamed = online(&mut agent, "web").await;
    assert_eq!(renamed["hostname"], "site.t.engine.localhost");
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
}

/// In every spelling, and at every time: the file has the same result after a restart.
#[tokio::test]
async fn a_tunnel_of_a_file_gets_the_host_name_that_it_requires() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = echo("").await;
    let file = home.path().join("svc.yaml");
    let text = |tunnels: &[(&str, &str)]| {
        let line = |(key, rest): &(&str, &str)| format!("  {key}: {{target: {port}{rest}}}\n");
        let tunnels: String = tunnels.iter().map(line).collect();
        format!("version: 1\ntunnels:\n{tunnels}")
    };
    let required = [
        ("alpha", ", hostname: Shop.t.engine.localhost"),
        ("shop", ""),
        ("site", ", labels: {a: b}"),
        ("zoo", ", hostname: SITE"),
    ];
    let names = ["shop.t.engine.localhost", "site.t.engine.localhost"];
    let check = |mut lines: Vec<Value>| {
        lines.sort_by_key(|line| line["tunnel"].as_str().unwrap().to_owned());
        let host = |index: usize| lines[index]["hostname"].as_str().unwrap();
        assert_eq!([host(0), host(3)], names);
        assert!(!names.contains(&host(1)), "{}", host(1));
        assert!(!names.contains(&host(2)), "{}", host(2));
    };

    fs::write(&file, text(&[("shop", ""), ("site", "")])).unwrap();
    let mut agent = home.start(&["run", "-o", "json"]);
    let mut lines = online_lines(&mut agent, 2).await;
    lines.sort_by_key(|line| line["tunnel"].as_str().unwrap().to_owned());
    let host = |index: usize| lines[index]["hostname"].as_str().unwrap();
    assert_eq!([host(0), host(1)], names);
    // The tunnels that have these names give them up, whether they change otherwise or not.
    replace(&file, &text(&required));
    let change = applied(&mut agent).await;
    assert_eq!(change["added"], json!(["alpha", "zoo"]));
    assert_eq!(change["changed"], json!(["shop", "site"]));
    check(online_lines(&mut agent, 4).await);
    // They keep the new ones.
    agent.signal(Signal::SIGHUP);
    assert_eq!(applied(&mut agent).await["unchanged"], 4);
    assert_eq!(agent.terminate().await.code, Some(0));

    let mut agent = home.start(&["run", "-o", "json"]);
    check(online_lines(&mut agent, 4).await);
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
}
