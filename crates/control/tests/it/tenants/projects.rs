//! Projects, from the preview to the deletion.

mod billing;
mod change;
mod create;
mod engine;
mod faults;
mod moves;
mod plan_change;
mod read;

use serde_json::{Value, json};

use crate::support::{Answer, Person, TestControl, next};

/// The path at which the workspace's projects are created.
fn creation(person: &Person) -> String {
    format!("/api/workspaces/{}/projects/tunnels", person.workspace)
}

/// The preview of one plan.
pub(crate) async fn preview(control: &TestControl, person: &Person, plan: &str) -> Value {
    let path = format!("{}/plan/config", creation(person));
    let config = control.get(&path, &person.token).await.expect(200);
    let plans = config["plans"].as_array().unwrap();
    plans
        .iter()
        .find(|option| option["plan"] == plan)
        .unwrap()
        .clone()
}

/// A creation as it was previewed, in the first region that was offered.
pub(crate) fn order(preview: &Value) -> Value {
    let provider = &preview["providers"][0];
    json!({
        "name": "My project",
        "plan": preview["plan"],
        "provider": provider["provider"],
        "region": provider["regions"][0]["region"],
        "creationFingerprint": preview["creationFingerprint"],
        "idempotencyKey": format!("key-{}", next()),
    })
}

pub(crate) async fn place(control: &TestControl, person: &Person, order: &Value) -> Answer {
    let path = creation(person);
    control.post(&path, &person.token, &order.clone()).await
}

/// A project on the free plan.
pub(crate) async fn project(control: &TestControl, person: &Person) -> Value {
    let order = order(&preview(control, person, "basic").await);
    place(control, person, &order).await.expect(201)
}

/// The names of the projects that the user sees, ordered by id.
async fn names(control: &TestControl, person: &Person) -> Vec<String> {
    let path = "/api/projects/tunnels?pageSize=100";
    let list = control.get(path, &person.token).await.expect(200);
    let projects = list["projects"].as_array().unwrap();
    let name = |project: &Value| project["name"].as_str().unwrap().to_owned();
    projects.iter().map(name).collect()
}

pub(crate) fn path(project: &Value) -> String {
    format!("/api/projects/tunnels/{}", project["id"].as_str().unwrap())
}
