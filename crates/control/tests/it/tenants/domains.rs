//! Custom domains, with authoritative name servers on loopback.

mod certificates;
mod delegation;
mod names;
mod servers;
mod states;

use http::Method;
use serde_json::{Value, json};

use crate::support::name_server::NameServers;
use crate::support::{Answer, Person, Project, TestControl};

const DAY: i64 = 24 * 3_600;

/// A project, and the name servers of its domains.
struct World {
    control: TestControl,
    dns: NameServers,
    ada: Person,
    project: Project,
}

impl World {
    async fn new(control: TestControl) -> Self {
        Self::with_plan(control, json!({"plan": "basic", "webhooks": true})).await
    }

    async fn with_plan(control: TestControl, plan: Value) -> Self {
        let dns = NameServers::start().await;
        let sections = json!({"domains": dns.section(), "catalog": {"plans": [plan]}});
        let control = control.configured(sections).await;
        let ada = control.person("ada").await;
        let project = control.project(&ada).await;
        Self {
            control,
            dns,
            ada,
            project,
        }
    }

    /// The host of the project's engine.
    fn engine(&self) -> String {
        format!("{}.engine.example", self.project.endpoint)
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let own = (&self.ada, &self.project);
        call(&self.control, own, method, path, body).await
    }

    async fn add(&self, hostname: &str) -> Value {
        let body = json!({ "hostname": hostname });
        self.call(Method::POST, "", Some(body)).await.expect(201)
    }

    /// Checks a domain. The clock is advanced, because a check is not repeated immediately.
    async fn verify(&self, domain: &Value) -> Value {
        self.control.clock.advance(6);
        let path = format!("/{}/verify", id(domain));
        self.call(Method::POST, &path, None).await.expect(200)
    }

    async fn show(&self, domain: &Value) -> Value {
        let path = format!("/{}", id(domain));
        self.call(Method::GET, &path, None).await.expect(200)
    }

    /// Adds a domain whose records are on the first server, and verifies it.
    async fn verified(&self, hostname: &str) -> Value {
        let domain = self.add(hostname).await;
        self.dns.enter(0, &domain);
        let domain = self.verify(&domain).await;
        assert_eq!(domain["status"], "verified", "{domain}");
        domain
    }

    /// Removes the records of a domain.
    fn remove_records(&self, domain: &Value) {
        for record in domain["records"].as_array().unwrap() {
            self.dns.remove(record["name"].as_str().unwrap());
        }
    }

    /// Runs the checks that are due after this time.
    async fn check_after(&self, seconds: i64) {
        self.control.clock.advance(seconds);
        let stop = tokio_util::sync::CancellationToken::new();
        let app = &self.control.app;
        control::domains::check_due(app, &stop).await.unwrap();
    }
}

async fn call(
    control: &TestControl,
    (who, project): (&Person, &Project),
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Answer {
    let path = format!("/api/projects/tunnels/{}/domains{path}", project.id);
    control
        .send(method, &path, Some(&who.token), body.as_ref())
        .await
}

fn id(domain: &Value) -> &str {
    domain["id"].as_str().unwrap()
}

/// Results of the checks: ownership and traffic.
fn results(domain: &Value) -> [&str; 2] {
    let result = |at: usize| domain["checks"][at]["result"].as_str().unwrap();
    [result(0), result(1)]
}
