//! Host names that were taken down, as engines receive them.

use api::link::{Item, Project as SentProject};
use serde_json::json;

use super::super::operator::operator;
use super::{Link, linked};
use crate::support::{TestControl, both};

both! {
    a_takedown_reaches_engines_with_its_project,
}

/// The next update about a project.
async fn next_project(link: &mut Link) -> SentProject {
    loop {
        let (_, items) = link.change().await;
        for item in items {
            if let Item::Project(project) = item {
                return *project;
            }
        }
    }
}

async fn a_takedown_reaches_engines_with_its_project(control: TestControl) {
    let (control, served, mut link, _ada, project) = linked(control).await;
    let ops = operator(&control, "ops").await;
    let hostname = format!("shop-{}.t.engine.example", project.endpoint);
    let path = "/api/operator/takedowns";
    let body = json!({"hostname": hostname, "reason": "Phishing"});
    control.post(path, &ops.token, &body).await.expect(201);
    let sent = next_project(&mut link).await;
    assert_eq!(sent.id, project.id.as_str());
    assert_eq!(sent.taken_down, [hostname.as_str()]);
    // An engine that links later receives it in the snapshot, and the reason is not sent.
    let all = served.link(None).await.everything().await;
    let found = all.items.iter().find_map(|item| match item {
        Item::Project(project) => Some(&project.taken_down),
        _ => None,
    });
    assert_eq!(found, Some(&vec![hostname.clone()]));
    assert!(
        !serde_json::to_string(&all.items)
            .unwrap()
            .contains("Phishing")
    );
    let one = format!("{path}/{hostname}");
    control.delete(&one, &ops.token).await.expect(204);
    let sent = next_project(&mut link).await;
    assert!(sent.taken_down.is_empty());
    served.stop().await;
}
