//! Host names that an operator takes down: who may do it, and who sees the reason.

use http::Method;
use serde_json::{Value, json};
use store::{domains, projects};

use super::engines::changes::custom_domain;
use super::operator::operator;
use crate::support::{Person, TestControl, both};

both! {
    an_operator_takes_down_a_hostname_with_a_reason_that_the_owner_sees,
    only_operators_take_down_names_of_projects,
    a_custom_domain_and_a_name_below_a_wildcard_are_taken_down,
}

const PATH: &str = "/api/operator/takedowns";
const REASON: &str = "Phishing; ticket 4711.";

fn body(hostname: &str) -> Value {
    json!({"hostname": hostname, "reason": REASON})
}

/// The actions of a workspace's audit log, with their details.
async fn audit(control: &TestControl, of: &Person) -> Vec<(String, Value)> {
    let path = format!("/api/workspaces/{}/audit?pageSize=100", of.workspace);
    let log = control.get(&path, &of.token).await.expect(200);
    let entries = log["entries"].as_array().unwrap();
    let entry = |entry: &Value| {
        let action = entry["action"].as_str().unwrap().to_owned();
        (action, entry["details"].clone())
    };
    entries.iter().map(entry).collect()
}

async fn an_operator_takes_down_a_hostname_with_a_reason_that_the_owner_sees(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let hostname = format!("shop-{}.t.engine.example", project.endpoint);
    let asked = body(&format!(" {}. ", hostname.to_uppercase()));
    let down = control.post(PATH, &ops.token, &asked).await.expect(201);
    assert_eq!(down["hostname"], hostname);
    assert_eq!(down["projectId"], project.id.as_str());
    assert_eq!(down["reason"], REASON);
    let again = control.post(PATH, &ops.token, &body(&hostname)).await;
    assert_eq!(again.problem(), (409, "conflict".to_owned()));

    let own = format!("/api/projects/tunnels/{}/takedowns", project.id);
    let seen = control.get(&own, &ada.token).await.expect(200);
    assert_eq!(seen, json!({"takedowns": [down]}));
    let all = control.get(PATH, &ops.token).await.expect(200);
    assert_eq!(
        (&all["takedowns"], &all["total"]),
        (&json!([down]), &json!(1))
    );
    let details = json!({"hostname": hostname, "reason": REASON});
    let entry = ("project.hostname_taken_down".to_owned(), details);
    assert!(audit(&control, &ada).await.contains(&entry));

    // The name is accepted in the same forms as before.
    let one = format!("{PATH}/{}.", hostname.to_uppercase());
    control.delete(&one, &ops.token).await.expect(204);
    let again = control.delete(&one, &ops.token).await;
    assert_eq!(again.problem(), (404, "not_found".to_owned()));
    let seen = control.get(&own, &ada.token).await.expect(200);
    assert_eq!(seen, json!({"takedowns": []}));
    let details = json!({"hostname": hostname});
    let entry = ("project.hostname_restored".to_owned(), details);
    assert!(audit(&control, &ada).await.contains(&entry));

    // The owner gets one mail; the members of other workspaces get none.
    let mut mails = control.mails().await;
    mails.retain(|mail| mail.contains("taken down"));
    let [mail] = &mails[..] else {
        panic!("one mail: {mails:?}")
    };
    for part in ["To: ada@example.com", REASON, project.endpoint.as_str()] {
        assert!(mail.contains(part), "{part}: {mail}");
    }
}

async fn only_operators_take_down_names_of_projects(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let project = control.project(&ada).await;
    let hostname = format!("shop-{}.t.engine.example", project.endpoint);
    let refused = control.post(PATH, &ada.token, &body(&hostname)).await;
    assert_eq!(refused.problem(), (404, "not_found".to_owned()));
    let refused = control.get(PATH, &ada.token).await;
    assert_eq!(refused.problem(), (404, "not_found".to_owned()));
    let elsewhere = format!("shop-{}.t.other.example", project.endpoint);
    let with_port = format!("{hostname}:8443");
    for (name, status) in [
        ("shop-ffffffff.t.engine.example", 404),
        (elsewhere.as_str(), 404),
        ("shop.example.com", 404),
        (with_port.as_str(), 400),
        ("*.example.com", 400),
        ("https://shop.example.com/", 400),
        ("", 400),
    ] {
        let answer = control.post(PATH, &ops.token, &body(name)).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        assert_eq!(answer.json()["field"], "hostname", "{name}");
    }
    for reason in ["", " ", "two\nlines"] {
        let asked = json!({"hostname": hostname, "reason": reason});
        let answer = control.post(PATH, &ops.token, &asked).await;
        assert_eq!(answer.problem(), (400, "invalid_request".to_owned()));
        assert_eq!(answer.json()["field"], "reason");
    }
    control
        .post(PATH, &ops.token, &body(&hostname))
        .await
        .expect(201);
    let one = format!("{PATH}/{hostname}");
    let refused = control.delete(&one, &ada.token).await;
    assert_eq!(refused.problem(), (404, "not_found".to_owned()));
    let own = format!("/api/projects/tunnels/{}/takedowns", project.id);
    let refused = control.get(&own, &eve.token).await;
    assert_eq!(refused.problem(), (404, "not_found".to_owned()));
    // A takedown can be lifted after the end of its project.
    let mut tx = control.app.store.begin().await.unwrap();
    projects::delete(&mut tx, project.id, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let lifted = control.send(Method::DELETE, &one, Some(&ops.token), None);
    lifted.await.expect(204);
}

async fn a_custom_domain_and_a_name_below_a_wildcard_are_taken_down(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let mut tx = control.app.store.begin().await.unwrap();
    for (number, name) in ["app.example.com", "*.shops.example.com"]
        .iter()
        .enumerate()
    {
        let state = domains::State::Verified;
        let domain = custom_domain(&control, (&ada, &project), number, name, state);
        domains::insert(&mut tx, &domain).await.unwrap();
    }
    tx.commit().await.unwrap();
    for name in ["app.example.com", "a.shops.example.com"] {
        let down = control
            .post(PATH, &ops.token, &body(name))
            .await
            .expect(201);
        assert_eq!(down["projectId"], project.id.as_str(), "{name}");
    }
    // Engines accept any slug before the endpoint.
    let odd = format!("a--{}.t.engine.example", project.endpoint);
    control
        .post(PATH, &ops.token, &body(&odd))
        .await
        .expect(201);
    let deeper = control
        .post(PATH, &ops.token, &body("a.b.shops.example.com"))
        .await;
    assert_eq!(deeper.problem(), (404, "not_found".to_owned()));
}
