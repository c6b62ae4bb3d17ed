//! Projects that move between subscriptions whose periods start on different days.

use control::runtime::jobs::renew;
use serde_json::{Value, json};
use store::members::Role;
use store::{Paging, billing};
use tokio_util::sync::CancellationToken;

use super::{order, path, place, preview};
use crate::support::{Person, TestControl, both};

both! {
    a_project_that_moves_before_each_renewal_is_charged_all_the_same,
    a_renewal_leaves_out_the_days_that_were_paid_for_elsewhere,
}

/// Two workspaces of one user, each of which pays for its own project, from the 1st and from the
/// 16th on, and a third project.
struct MovedProject {
    control: TestControl,
    person: Person,
    workspaces: [Person; 2],
    project: Value,
}

impl MovedProject {
    async fn new(control: TestControl) -> Self {
        let control = control
            .configured(json!({"catalog": {"plans": [{"plan": "pro", "monthly_price": 3000}]}}))
            .await;
        control.clock.set("2026-05-16T10:00:00Z".parse().unwrap());
        let (person, other) = (control.person("ada").await, control.person("eve").await);
        control.join(&person, other.workspace, Role::Owner).await;
        let create = async |of: &Person| {
            control.subscribe(of.workspace).await;
            let order = order(&preview(&control, of, "pro").await);
            place(&control, of, &order).await.expect(201)
        };
        create(&other).await;
        control.clock.set("2026-06-01T10:00:00Z".parse().unwrap());
        create(&person).await;
        let project = create(&person).await;
        let workspaces = [person.clone(), other];
        Self {
            control,
            person,
            workspaces,
            project,
        }
    }

    async fn on(&self, day: &str) {
        let at = format!("{day}T12:00:00Z");
        self.control.clock.set(at.parse().unwrap());
        let stop = CancellationToken::new();
        renew(&self.control.app, &stop).await.unwrap();
    }

    async fn moves_to(&self, to: usize, day: &str) {
        self.on(day).await;
        let transfer = format!("{}/transfer", path(&self.project));
        let body = json!({"workspaceId": self.workspaces[to].workspace});
        self.control
            .post(&transfer, &self.person.token, &body)
            .await
            .expect(200);
    }

    /// The invoices of the project, oldest first: the first day and the amount.
    async fn charged(&self) -> Vec<(String, i64)> {
        let mut read = self.control.app.store.read().await.unwrap();
        let mut charged = Vec::new();
        for workspace in &self.workspaces {
            let all = billing::invoices(&mut read, workspace.workspace, Paging::DEFAULT).await;
            for invoice in all.unwrap().items {
                let lines = invoice.lines.as_array().unwrap();
                let lines = lines
                    .iter()
                    .filter(|line| line["projectId"] == self.project["id"]);
                let day = invoice.period_start.to_string()[..10].to_owned();
                charged.extend(lines.map(|line| (day.clone(), line["amount"].as_i64().unwrap())));
                let sum = |line: &Value| line["amount"].as_i64().unwrap();
                let all: i64 = invoice.lines.as_array().unwrap().iter().map(sum).sum();
                assert_eq!(all, invoice.amount);
            }
        }
        charged.sort();
        charged
    }
}

fn owned(charged: &[(&str, i64)]) -> Vec<(String, i64)> {
    let owned = charged
        .iter()
        .map(|(day, amount)| ((*day).to_owned(), *amount));
    owned.collect()
}

async fn a_project_that_moves_before_each_renewal_is_charged_all_the_same(control: TestControl) {
    let moved = MovedProject::new(control).await;
    let mut expected = vec![("2026-06-01", 3000)];
    moved.moves_to(1, "2026-06-30").await;
    // From the 1st to the 16th of July, in a period of 30 days.
    expected.push(("2026-07-01", 1500));
    moved.moves_to(0, "2026-07-15").await;
    // And up to the 1st of August, in a period of 31 days.
    expected.push(("2026-07-16", 1548));
    moved.moves_to(1, "2026-07-31").await;
    expected.push(("2026-08-01", 1451));
    moved.moves_to(0, "2026-08-15").await;
    expected.push(("2026-08-16", 1548));
    moved.on("2026-09-20").await;
    expected.push(("2026-09-01", 3000));
    assert_eq!(moved.charged().await, owned(&expected));
}

async fn a_renewal_leaves_out_the_days_that_were_paid_for_elsewhere(control: TestControl) {
    let moved = MovedProject::new(control).await;
    // It is paid for up to the 1st of July, longer than the period of the new subscription.
    moved.moves_to(1, "2026-06-10").await;
    moved.on("2026-06-16").await;
    let mut expected = vec![("2026-06-01", 3000), ("2026-06-16", 1500)];
    assert_eq!(moved.charged().await, owned(&expected));
    // Away and back within paid days.
    moved.moves_to(0, "2026-06-20").await;
    // Nothing is left of the period up to the 1st of July, and the next one starts in the middle.
    moved.on("2026-07-01").await;
    expected.push(("2026-07-01", 1548));
    assert_eq!(moved.charged().await, owned(&expected));
    moved.moves_to(1, "2026-07-02").await;
    moved.on("2026-08-16").await;
    // It is paid for up to the 1st of August.
    expected.extend([("2026-07-16", 1451), ("2026-08-16", 3000)]);
    assert_eq!(moved.charged().await, owned(&expected));
}
