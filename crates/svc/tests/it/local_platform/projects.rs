//! Projects of a running platform.

use serde_json::json;

use super::long_sequence::create_project;
use crate::hosted::HostedPlatform;
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

/// CP-4g: a plan is only changed with the fingerprint of its preview.
#[tokio::test]
async fn cp_4g_a_plan_is_changed_after_its_preview() {
    let home = Home::new();
    let plans = json!({"plans": [{"plan": "pro", "monthly_price": 0}]});
    let platform = HostedPlatform::start(&home, plans).await;
    platform.login(&home).await;
    create_project(&home, "staging").await;
    assert_eq!(home.run(&["project", "use", "staging"]).await.code, Some(0));
    let change = async |plan: &str, further: &[&str]| {
        let change = ["project", "plan", "--change", plan, "-o", "json"];
        home.run(&[&change[..], further].concat()).await
    };
    let unconfirmed = change("pro", &[]).await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("--confirm"), "{unconfirmed:?}");
    let preview = change("pro", &["--preview"]).await.json();
    assert_eq!(preview["available"], true, "{preview}");
    let other = change("pro", &["--confirm", "other"]).await;
    assert_eq!(other.code, Some(4), "{other:?}");
    let plan = async || home.run(&["project", "plan", "-o", "json"]).await.json();
    assert_eq!(plan().await["plan"], "basic");
    let fingerprint = preview["changeFingerprint"].as_str().unwrap();
    let confirm = ["--confirm", fingerprint];
    assert_eq!(change("pro", &confirm).await.json()["plan"], "pro");
    assert_eq!(plan().await["plan"], "pro");
    // A repeated command changes nothing.
    let again = change("pro", &confirm).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let arranged = change("enterprise", &[]).await;
    assert_eq!(arranged.code, Some(4), "{arranged:?}");
    assert!(arranged.stderr.contains("arrangement"), "{arranged:?}");
}
