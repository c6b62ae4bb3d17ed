//! `svc webtty server create|list|…`, against a real platform.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::hosted::HostedPlatform;
use crate::local_platform::long_sequence::create_project;
use crate::program::{CommandOutput, Home};

/// A platform with a selected project.
async fn start_platform(home: &Home) -> HostedPlatform {
    let platform = HostedPlatform::start(home, json!({})).await;
    platform.login(home).await;
    create_project(home, "staging").await;
    let used = home.run(&["project", "use", "staging"]).await;
    assert_eq!(used.code, Some(0), "{used:?}");
    platform
}

async fn server(home: &Home, args: &[&str]) -> CommandOutput {
    home.run(&[&["webtty", "server"], args].concat()).await
}

async fn shown(home: &Home, args: &[&str]) -> Value {
    server(home, &[args, &["-o", "json"]].concat()).await.json()
}

/// CP-12, WT-2: from the record to its deletion, including the enrolment of this host.
#[tokio::test]
async fn cp_12_a_server_is_registered_enrolled_changed_and_deleted() {
    let home = Home::new();
    let _platform = start_platform(&home).await;
    let create = ["create", "build-7", "--label", "site=bern"];
    let created = shown(&home, &create).await;
    assert_eq!(created["status"], "pending_enrollment");
    assert_eq!(created["labels"], json!({"site": "bern"}));
    // Repeating the command has the same result. With another policy it is refused.
    assert_eq!(shown(&home, &create).await, created);
    let other = [&create[..], &["--recording-policy", "private"]].concat();
    let refused = server(&home, &other).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("--recording-policy"), "{refused:?}");

    let enrolled = shown(&home, &[&create[..], &["--enroll"]].concat()).await;
    assert_eq!(enrolled["status"], "active");
    assert_eq!(enrolled["id"], created["id"]);
    let id = created["id"].as_str().unwrap();
    let folder = home.path().join(".svc").join("webtty");
    let enrollment = folder.join("enrollments").join(format!("{id}.yaml"));
    let identity = folder
        .join("identities")
        .join(format!("{id}.identity.json"));
    for file in [&enrollment, &identity] {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let kept = std::fs::read_to_string(&enrollment).unwrap();
    for key in ["id", "projectId", "workspaceId", "serverFingerprint"] {
        assert!(
            kept.contains(enrolled[key].as_str().unwrap()),
            "{key}: {kept}"
        );
    }
    // No private key leaves the host, and repeating changes nothing.
    let private: Value = serde_json::from_slice(&std::fs::read(&identity).unwrap()).unwrap();
    for key in ["encryption_private_key", "signing_private_key"] {
        let secret = private[key].as_str().unwrap();
        assert!(!enrolled.to_string().contains(secret) && !kept.contains(secret));
    }
    assert_eq!(shown(&home, &["enroll", "build-7"]).await, enrolled);
    // Another host cannot act as this server.
    std::fs::remove_file(&identity).unwrap();
    let refused = server(&home, &["enroll", "build-7"]).await;
    assert!(
        refused.stderr.contains("enrolled with other keys"),
        "{refused:?}"
    );

    let changed = shown(
        &home,
        &[
            "update",
            id,
            "--access-policy",
            "restricted",
            "--description",
            "A host",
        ],
    )
    .await;
    assert_eq!(
        (&changed["accessPolicy"], &changed["description"]),
        (&json!("restricted"), &json!("A host"))
    );
    for (command, status) in [("suspend", "suspended"), ("resume", "active")] {
        assert_eq!(shown(&home, &[command, "build-7"]).await["status"], status);
    }
    let list = server(&home, &["list", "--q", "BUILD", "--status", "active"]).await;
    let row = format!("build-7\tactive\trecorded\tdisabled\trestricted\t{id}\n");
    assert_eq!(list.stdout, row);
    let text = server(&home, &["show", id]).await;
    let fingerprint = enrolled["serverFingerprint"].as_str().unwrap();
    let line = format!("fingerprint\t{fingerprint}\n");
    assert!(text.stdout.contains(&line), "{text:?}");

    let refused = server(&home, &["delete", "build-7"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let gone = server(&home, &["delete", "build-7", "--yes"]).await;
    assert_eq!(gone.code, Some(0), "{gone:?}");
    let refused = server(&home, &["show", "build-7"]).await;
    assert!(
        refused.stderr.contains("no registered server"),
        "{refused:?}"
    );
    assert_eq!(shown(&home, &["list"]).await["total"], 0);
}
