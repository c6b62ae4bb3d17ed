//! Several projects of a running `svc up`.

use crate::installed::up;
use crate::program::{Home, soon};

#[tokio::test]
async fn the_selected_project_is_used_while_up_runs() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let create = ["project", "create", "staging", "-o", "json"];
    let preview = home
        .run(&[&create[..], &["--preview"]].concat())
        .await
        .json();
    let plans = preview["plans"].as_array().unwrap();
    let basic = plans.iter().find(|plan| plan["plan"] == "basic").unwrap();
    let fingerprint = basic["creationFingerprint"].as_str().unwrap();
    let confirm = [&create[..], &["--confirm", fingerprint]].concat();
    let project = home.run(&confirm).await.json();
    let endpoint = project["endpoint"].as_str().unwrap();
    assert_ne!(endpoint, up.ready_field("project_endpoint"));
    let used = home.run(&["project", "use", "staging"]).await;
    assert_eq!(used.code, Some(0), "{used:?}");
    // The engine gets the new project within a second.
    let known = async { while home.run(&["tunnels"]).await.code != Some(0) {} };
    soon("the engine serves the project", known).await;

    let forward = ["forward", "3000", "--name", "web", "-o", "json"];
    let mut agent = home.start(&forward);
    let online = agent.json_where(|line| line["status"] == "online").await;
    let hostname = online["hostname"].as_str().unwrap();
    assert!(
        hostname.starts_with(&format!("web-{endpoint}.t.")),
        "{online}"
    );
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
    let context = home.path().join(".config/svc/contexts/local.json");
    assert!(!context.exists(), "the context ends with `svc up`");
}
