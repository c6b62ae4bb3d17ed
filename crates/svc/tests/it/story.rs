//! A whole story on the command line, against a real platform.

use serde_json::{Value, json};

use super::{hosted::Hosted, installed::up, program::Home};

#[tokio::test]
async fn from_the_login_to_the_last_delete() {
    let home = Home::new();
    let platform = Hosted::start(&home, json!({})).await;
    platform.login(&home).await;
    let whoami = home.run(&["whoami", "-o", "json"]).await.json();
    assert_eq!(whoami["email"], "ada@example.com");
    insta::assert_json_snapshot!("whoami", whoami, {
        ".id" => "[id]", ".workspaceIds[]" => "[id]",
    });

    let made = home
        .run(&["workspace", "create", "Engines", "-o", "json"])
        .await
        .json();
    let workspaces = home.run(&["workspace", "list"]).await;
    let id = made["id"].as_str().unwrap();
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
    let audit = home
        .run(&["audit", "--workspace", "Engines", "-o", "json"])
        .await
        .json();
    let actions: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert!(actions.contains(&"project.created"), "{actions:?}");

    // Nobody can be asked on a pipe.
    let unasked = home.run(&["project", "delete", "production"]).await;
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    let deleted = home
        .run(&["project", "delete", "production", "--yes"])
        .await;
    assert_eq!((deleted.code, deleted.stdout.as_str()), (Some(0), ""));
    let gone = home.run(&["turn-credentials"]).await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stderr.contains("is gone"), "{gone:?}");
    let deleted = home.run(&["workspace", "delete", "Engines", "--yes"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");

    let out = home.run(&["logout"]).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let nobody = home.run(&["whoami"]).await;
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert_eq!(platform.running.terminate().await.code, Some(0));
}

#[tokio::test]
async fn members_are_invited_and_projects_go_to_another_workspace() {
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

/// The fingerprint of a plan.
pub(crate) fn fingerprint(preview: &Value, plan: &str) -> String {
    let plans = preview["plans"].as_array().unwrap();
    let option = plans.iter().find(|option| option["plan"] == plan).unwrap();
    option["creationFingerprint"].as_str().unwrap().to_owned()
}
