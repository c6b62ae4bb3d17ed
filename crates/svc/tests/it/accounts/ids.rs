//! Ids that are given by their first characters.

use serde_json::Value;

use crate::installed::up;
use crate::program::{Home, RunningCommand};
use crate::publishing::run::echo;

/// The shortest start of `id` that no other of these ids has.
fn unique_start<'i>(id: &'i str, all: &[String]) -> &'i str {
    let is_unique = |start: &str| all.iter().filter(|id| id.starts_with(start)).count() == 1;
    let lengths = "crd_0".len()..id.len();
    lengths
        .map(|length| &id[..length])
        .find(|start| is_unique(start))
        .unwrap()
}

/// The ids of a list.
fn ids(list: &Value) -> Vec<String> {
    let ids = list.as_array().unwrap().iter();
    ids.map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

async fn json(home: &Home, args: &[&str]) -> Value {
    home.run(&[args, &["-o", "json"]].concat()).await.json()
}

#[tokio::test]
async fn a_credential_is_selected_by_the_start_of_its_id() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    for name in ["laptop", "desk"] {
        json(&home, &["credential", "create", name, "--ttl", "1h"]).await;
    }
    let list = json(&home, &["credential", "list"]).await["credentials"].clone();
    let all = ids(&list);
    let id = |name: &str| {
        let mut list = list.as_array().unwrap().iter();
        let found = list.find(|one| one["name"] == name).unwrap();
        found["id"].as_str().unwrap().to_owned()
    };
    let (laptop, desk) = (id("laptop"), id("desk"));

    let ambiguous = home.run(&["credential", "revoke", "crd_0"]).await;
    assert_eq!(ambiguous.code, Some(2), "{ambiguous:?}");
    let start = "error[ambiguous_id]: `crd_0` is the start of several credential ids: ";
    assert!(ambiguous.stderr.starts_with(start), "{ambiguous:?}");
    for candidate in [format!("{laptop} (laptop)"), format!("{desk} (desk)")] {
        assert!(ambiguous.stderr.contains(&candidate), "{ambiguous:?}");
    }
    assert!(
        ambiguous.stderr.contains("\nhint: give more characters"),
        "{ambiguous:?}"
    );
    // A kind selects nothing, and neither does the start of no id.
    for text in ["crd_", "crd_zzz"] {
        let unknown = home.run(&["credential", "revoke", text]).await;
        assert_eq!(unknown.code, Some(1), "{unknown:?}");
        assert!(unknown.stderr.contains("does not exist"), "{unknown:?}");
    }

    let start = unique_start(&laptop, &all);
    let rotated = json(&home, &["credential", "rotate", start]).await;
    assert_eq!(rotated["credential"]["name"], "laptop", "{rotated}");
    let all = ids(&json(&home, &["credential", "list"]).await["credentials"]);
    let start = unique_start(&desk, &all);
    let revoked = home.run(&["credential", "revoke", start]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    assert_eq!(revoked.stderr, format!("{desk} is revoked\n"));
    let left = json(&home, &["credential", "list"]).await;
    let left = ids(&left["credentials"]);
    assert!(!left.contains(&desk), "{left:?}");
    up.stop().await;
}

#[tokio::test]
async fn objects_of_a_project_and_a_workspace_are_selected_by_the_start_of_their_ids() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let succeeds = async |args: &[&str]| {
        let output = home.run(args).await;
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output
    };

    let project = up.ready_field("project_id");
    let endpoint = up.ready_field("project_endpoint");
    for start in [&project[..12], &endpoint[..5]] {
        let used = ["project", "plan", "--project", start];
        succeeds(&used).await;
    }
    // The start of an endpoint may be the name of a project that no longer exists.
    for start in [&project[..12], &endpoint[..5]] {
        let refused = home.run(&["project", "delete", start, "--yes"]).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("only the start"), "{refused:?}");
    }

    for name in ["first", "second"] {
        let url = format!("https://{name}.example.com/in");
        json(
            &home,
            &["project", "webhooks", "create", name, "--url", &url],
        )
        .await;
    }
    let webhooks = json(&home, &["project", "webhooks", "list"]).await["webhooks"].clone();
    let all = ids(&webhooks);
    for (webhook, id) in webhooks.as_array().unwrap().iter().zip(&all) {
        let start = unique_start(id, &all);
        let shown = json(&home, &["project", "webhooks", "get", start]).await;
        assert_eq!(shown["name"], webhook["name"], "{shown}");
    }
    let start = unique_start(&all[0], &all);
    succeeds(&["project", "webhooks", "delete", start, "--yes"]).await;
    let left = json(&home, &["project", "webhooks", "list"]).await;
    assert_eq!(ids(&left["webhooks"]), all[1..]);

    let workspace = json(&home, &["workspace", "create", "Engines"]).await;
    let workspaces = json(&home, &["workspace", "list"]).await;
    let id = workspace["id"].as_str().unwrap();
    let engines = unique_start(id, &ids(&workspaces["workspaces"])).to_owned();
    for email in ["grace@example.com", "alan@example.com"] {
        succeeds(&["workspace", "invite", email, "--workspace", &engines]).await;
    }
    let invitations = json(&home, &["workspace", "invitations", &engines]).await;
    let all = ids(&invitations["invitations"]);
    let start = unique_start(&all[1], &all);
    succeeds(&["workspace", "withdraw", start, "--workspace", &engines]).await;
    let left = json(&home, &["workspace", "invitations", &engines]).await;
    let status = |index: usize| left["invitations"][index]["status"].clone();
    assert_eq!([status(0), status(1)], ["pending", "revoked"], "{left}");
    up.stop().await;
}

#[tokio::test]
async fn a_private_tunnel_is_dialled_by_the_start_of_its_id() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let mut agents = Vec::new();
    let mut all = Vec::new();
    for name in ["one", "two"] {
        let port = echo(name).await.to_string();
        let args = [
            "forward",
            &port,
            "--bytestream",
            "--name",
            name,
            "-o",
            "json",
        ];
        let mut agent: RunningCommand = home.start(&args);
        let online = agent.json_where(|line| line["status"] == "online").await;
        all.push(online["tunnel_id"].as_str().unwrap().to_owned());
        agents.push(agent);
    }
    let ambiguous = home.run(&["dial", "tun_0"]).await;
    assert_eq!(ambiguous.code, Some(2), "{ambiguous:?}");
    assert!(ambiguous.stderr.contains("(one)"), "{ambiguous:?}");
    for (id, name) in all.iter().zip(["one", "two"]) {
        let dialled = home.run(&["dial", unique_start(id, &all)]).await;
        assert_eq!(dialled.stdout, name, "{dialled:?}");
    }
    for agent in agents {
        assert_eq!(agent.terminate().await.code, Some(0));
    }
    up.stop().await;
}
