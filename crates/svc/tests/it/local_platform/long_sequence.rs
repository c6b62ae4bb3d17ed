//! A long sequence of commands against a real platform.

use serde_json::{Value, json};

use crate::hosted::HostedPlatform;
use crate::installed::up;
use crate::program::Home;

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn from_the_login_to_the_last_delete() {
    let home = Home::new();
    let platform = HostedPlatform::start(&home, json!({})).await;
    platform.login(&home).await;
    let whoami = home.run(&["whoami", "-o", "json"]).await.json();
    assert_eq!(whoami["email"], "ada@example.com");
    insta::assert_json_snapshot!("whoami", whoami, {
        ".id" => "[id]", ".workspaceIds[]" => "[id]",
    });

    let created = home
        .run(&["workspace", "create", "Engines", "-o", "json"])
        .await
        .json();
    let workspaces = home.run(&["workspace", "list"]).await;
    let id = created["id"].as_str().unwrap();
    assert!(
        workspaces
            .stdout
            .lines()
            .any(|line| line == format!("Engines\tteam\towner\tactive\t{id}")),
        "{workspaces:?}"
    );

    let create = ["project", "create", "--workspace", "Engines"];
    let preview = home
        .run(&[&create[..], &["--preview", "-o", "json"]].concat())
        .await
        .json();
    insta::assert_json_snapshot!("preview", preview, {
        ".plans[].creationFingerprint" => "[fingerprint]",
    });
    let fingerprint = fingerprint(&preview, "basic");
    let confirmed = ["staging", "--confirm", &fingerprint, "-o", "json"];
    let project = home.run(&[&create[..], &confirmed].concat()).await.json();
    assert_eq!(project["workspaceId"], id);
    insta::assert_json_snapshot!("project", project, {
        ".id" => "[id]", ".workspaceId" => "[id]", ".endpoint" => "[endpoint]",
        ".url" => "[endpoint].engine.example.com:443",
    });

    let used = home.run(&["project", "use", "staging"]).await;
    assert_eq!(used.code, Some(0), "{used:?}");
    let settings = home
        .run(&[
            "project",
            "settings",
            "set",
            "publicAccessPolicy=auth-required",
            "trustedIps=192.0.2.0/24",
            "-o",
            "json",
        ])
        .await
        .json();
    let expected = json!({"publicAccessPolicy": "auth-required", "publishedTcpEnabled": true,
        "trustedIps": ["192.0.2.0/24"]});
    assert_eq!(settings, expected);
    let shown = home.run(&["project", "settings"]).await;
    assert!(
        shown.stdout.contains("publicAccessPolicy\tauth-required\n"),
        "{shown:?}"
    );
    let reset = home
        .run(&["project", "settings", "reset", "-o", "json"])
        .await;
    assert_eq!(reset.json()["publicAccessPolicy"], "allowed");

    let permission = ["--permission", "account.projects.read-only"];
    let token = home
        .run(&[&["token", "create", "--ttl", "1m"], &permission[..]].concat())
        .await;
    let reader = token.stdout.trim();
    let list = home
        .run(&["project", "list", "--token", reader, "-o", "json"])
        .await;
    assert_eq!(list.json()["total"], 1);

    let turn = home
        .run(&["turn-credentials", "--ttl", "1m", "-o", "json"])
        .await
        .json();
    assert_eq!(turn["ttl"], 60);
    let endpoint = project["endpoint"].as_str().unwrap();
    let username = turn["username"].as_str().unwrap();
    assert!(username.contains(&format!(":api:{endpoint}:")), "{turn}");

    for (records, key) in [("logs", "logs"), ("events", "events")] {
        let list = home.run(&["project", records, "-o", "json"]).await.json();
        assert_eq!(list[key], json!([]));
    }
    let plan = home.run(&["project", "plan", "-o", "json"]).await.json();
    assert_eq!(plan["plan"], "basic");
    let usage = home
        .run(&["project", "usage", "--turn", "-o", "json"])
        .await;
    assert_eq!(usage.json()["total"]["credentials"], 1);

    let renamed = home
        .run(&["project", "rename", endpoint, "production", "-o", "json"])
        .await
        .json();
    assert_eq!(renamed["name"], "production");
    let in_workspace = ["audit", "--workspace", "Engines"];
    let created = ["--action", "project.created", "-o", "json"];
    let audit = home
        .run(&[&in_workspace[..], &created].concat())
        .await
        .json();
    let actions: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    let is_creation = |action: &&str| *action == "project.created";
    assert!(
        !actions.is_empty() && actions.iter().all(is_creation),
        "{actions:?}"
    );

    // No confirmation is possible on a pipe.
    let unasked = home.run(&["project", "delete", "production"]).await;
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    let deleted = home
        .run(&["project", "delete", "production", "--yes"])
        .await;
    assert_eq!((deleted.code, deleted.stdout.as_str()), (Some(0), ""));
    let gone = home.run(&["turn-credentials"]).await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stderr.contains("no longer exists"), "{gone:?}");
    let deleted = home.run(&["workspace", "delete", "Engines", "--yes"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");

    let out = home.run(&["logout"]).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let signed_out = home.run(&["whoami"]).await;
    assert_eq!(signed_out.code, Some(2), "{signed_out:?}");
    assert_eq!(platform.running.terminate().await.code, Some(0));
}

#[tokio::test]
async fn members_are_invited_and_projects_move_to_another_workspace() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    home.run(&["workspace", "create", "Engines", "-o", "json"])
        .await
        .json();
    let invited = home
        .run(&[
            "workspace",
            "invite",
            "grace@example.com",
            "--workspace",
            "Engines",
        ])
        .await;
    assert_eq!(invited.code, Some(0), "{invited:?}");
    assert!(
        invited.stdout.starts_with("http://localhost:"),
        "{invited:?}"
    );
    let members = home
        .run(&["workspace", "members", "Engines", "-o", "json"])
        .await;
    assert_eq!(members.json()["members"][0]["email"], "admin@localhost");
    let moved = home
        .run(&[
            "project", "transfer", "local", "--to", "Engines", "-o", "json",
        ])
        .await
        .json();
    let workspaces = home.run(&["workspace", "list", "-o", "json"]).await.json();
    assert_eq!(moved["workspaceId"], workspaces["workspaces"][1]["id"]);
    let renamed = home
        .run(&["workspace", "rename", "Engines", "Analytical", "-o", "json"])
        .await
        .json();
    assert_eq!(renamed["name"], "Analytical");
}

#[tokio::test]
async fn invitations_are_listed_and_withdrawn() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let engines = ["--workspace", "Engines"];
    let run = async |args: &[&str]| home.run(&[args, &engines].concat()).await;
    home.run(&["workspace", "create", "Engines", "-o", "json"])
        .await
        .json();
    let statuses = async || {
        let list = ["workspace", "invitations", "Engines", "-o", "json"];
        let list = home.run(&list).await.json();
        let all = list["invitations"].as_array().unwrap().clone();
        let status = |email: &str| {
            let one = all.iter().find(|one| one["email"] == email).unwrap();
            one["status"].as_str().unwrap().to_owned()
        };
        [status("grace@example.com"), status("alan@example.com")]
    };
    for email in ["grace@example.com", "alan@example.com"] {
        let invited = run(&["workspace", "invite", email]).await;
        assert_eq!(invited.code, Some(0), "{invited:?}");
    }
    assert_eq!(statuses().await, ["pending", "pending"]);
    let withdraw = ["workspace", "withdraw", "Alan@example.com"];
    assert_eq!(run(&withdraw).await.code, Some(0));
    assert_eq!(statuses().await, ["pending", "revoked"]);
    let again = run(&withdraw).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(
        again.stderr.contains("svc workspace invitations"),
        "{again:?}"
    );
    up.stop().await;
}

#[tokio::test]
async fn members_get_roles_and_leave() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let engines = ["--workspace", "Engines"];
    let run = async |args: &[&str]| home.run(&[args, &engines].concat()).await;
    home.run(&["workspace", "create", "Engines", "-o", "json"])
        .await
        .json();
    let grace = run(&["workspace", "invite", "grace@example.com", "-o", "json"]).await;
    let link = grace.json()["url"].as_str().unwrap().to_owned();

    let joined = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap()
        .post(link)
        .header("origin", up.ready_field("base_url"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body("name=Grace&password=compilers+are+useful");
    assert_eq!(joined.send().await.unwrap().status(), 303);

    let members = async || {
        let list = home
            .run(&["workspace", "members", "Engines", "-o", "json"])
            .await;
        list.json()["members"].clone()
    };
    let role = [
        "workspace",
        "set-role",
        "Grace@example.com",
        "viewer",
        "-o",
        "json",
    ];
    assert_eq!(run(&role).await.json()["role"], "viewer");
    let listed = members().await;
    let grace = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["role"] == "viewer")
        .unwrap();
    assert_eq!(grace["email"], "grace@example.com", "{listed}");
    // The workspace keeps an owner.
    let last = run(&["workspace", "set-role", "admin@localhost", "member"]).await;
    assert_eq!(last.code, Some(4), "{last:?}");
    let unknown = run(&["workspace", "set-role", "grac@example.com", "member"]).await;
    assert!(
        unknown.stderr.contains("did you mean `grace@example.com`?"),
        "{unknown:?}"
    );

    let remove = ["workspace", "remove", grace["id"].as_str().unwrap()];
    assert_eq!(
        run(&remove).await.code,
        Some(2),
        "no confirmation is possible"
    );
    let removed = run(&[&remove[..], &["--yes"]].concat()).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(members().await.as_array().unwrap().len(), 1);
    up.stop().await;
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn webhooks_and_addresses_are_managed() {
    let home = Home::new();
    let plans = json!({"plans": [{"plan": "basic", "webhooks": true}]});
    let platform = HostedPlatform::start(&home, plans).await;
    platform.login(&home).await;
    create_project(&home, "staging").await;
    assert_eq!(home.run(&["project", "use", "staging"]).await.code, Some(0));

    let webhooks = async |args: &[&str]| {
        let output = home.run(&[&["project", "webhooks"], args].concat()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        output
    };
    let url = "https://chat.example.com/in";
    let create = ["create", "chat", "--url", url, "--event", "tunnel.created"];
    let created = webhooks(&[&create[..], &["-o", "json"]].concat())
        .await
        .json();
    let id = created["id"].as_str().unwrap();
    assert!(
        created["signingSecret"]
            .as_str()
            .unwrap()
            .starts_with("whsec_")
    );
    let list = webhooks(&["list"]).await.stdout;
    let line = format!("chat\tenabled\ttunnel.created\t{url}\t{id}");
    assert!(list.lines().any(|found| found == line), "{list}");
    let update = ["update", id, "--status", "disabled", "--description", "x"];
    let updated = webhooks(&[&update[..], &["-o", "json"]].concat())
        .await
        .json();
    assert_eq!(
        (
            &updated["status"],
            &updated["description"],
            &updated["events"]
        ),
        (&json!("disabled"), &json!("x"), &json!(["tunnel.created"]))
    );
    let rotated = webhooks(&["rotate", id, "--overlap", "1h"]).await;
    assert!(
        rotated.stdout.contains("signing secret\twhsec_"),
        "{rotated:?}"
    );
    assert!(
        rotated.stdout.contains("old secret signs until\t"),
        "{rotated:?}"
    );
    let deliveries = webhooks(&["deliveries", id, "-o", "json"]).await.json();
    assert_eq!(deliveries["deliveries"], json!([]));
    let local = [
        "project",
        "webhooks",
        "create",
        "x",
        "--url",
        "https://127.0.0.1/",
    ];
    let refused = home.run(&local).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("public addresses"), "{refused:?}");
    webhooks(&["delete", id, "--yes"]).await;

    let reserved = home
        .run(&["project", "addresses", "reserve", "-o", "json"])
        .await;
    assert_eq!(reserved.json()["port"], 20_000);
    let more = home.run(&["project", "addresses", "reserve"]).await;
    assert_ne!(more.code, Some(0), "{more:?}");
    assert!(more.stderr.contains("plan"), "{more:?}");
    let list = home.run(&["project", "addresses", "list"]).await;
    assert!(
        list.stdout.contains("20000\tengine.example.com\t"),
        "{list:?}"
    );
    let released = home
        .run(&["project", "addresses", "release", "20000"])
        .await;
    assert_eq!(released.code, Some(0), "{released:?}");
    let unknown = home
        .run(&["project", "addresses", "release", "20000"])
        .await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    let takedowns = home.run(&["project", "takedowns", "-o", "json"]).await;
    assert_eq!(takedowns.json(), json!({"takedowns": []}));
}

/// Creates a project with the plan `basic`.
pub(crate) async fn create_project(home: &Home, name: &str) {
    let preview = ["project", "create", "--preview", "-o", "json"];
    let confirmed = fingerprint(&home.run(&preview).await.json(), "basic");
    let create = ["project", "create", name, "--confirm", &confirmed];
    let created = home.run(&create).await;
    assert_eq!(created.code, Some(0), "{created:?}");
}

/// The fingerprint of a plan.
pub(crate) fn fingerprint(preview: &Value, plan: &str) -> String {
    let plans = preview["plans"].as_array().unwrap();
    let option = plans.iter().find(|option| option["plan"] == plan).unwrap();
    option["creationFingerprint"].as_str().unwrap().to_owned()
}
