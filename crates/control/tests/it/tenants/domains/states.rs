//! Repeated checks, and the states of a domain over weeks.

use http::Method;
use serde_json::{Value, json};

use super::{DAY, World, call, id};
use crate::support::{TestControl, both};

both! {
    a_domain_without_records_is_warned_suspended_and_released,
    records_that_return_verify_a_domain_again,
    a_check_on_request_also_sends_the_mail,
    a_clock_that_was_set_back_stops_no_check,
    a_released_name_belongs_to_its_project_for_a_while,
    a_pending_domain_is_verified_by_the_task_or_deleted,
    the_task_leaves_a_pending_domain_of_a_held_name,
}

/// Each step has an event for webhooks, an audit entry and a mail.
async fn a_domain_without_records_is_warned_suspended_and_released(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.verified("app.example.com").await;
    world.check_after(DAY).await;
    let checked = world.show(&domain).await;
    assert_eq!(checked["status"], "verified");
    assert_ne!(checked["lastCheckedAt"], domain["lastCheckedAt"]);
    assert_eq!(world.control.mails().await.len(), 0);

    world.remove_records(&domain);
    world.check_after(DAY).await;
    let warned = world.show(&domain).await;
    assert_eq!(warned["status"], "warned");
    let failing = warned["failingSince"].as_str().unwrap();
    assert_eq!(failing, warned["lastCheckedAt"]);
    assert!(warned["suspendsAt"].as_str().unwrap() > failing);
    world.check_after(3 * DAY - 1).await;
    assert_eq!(world.show(&domain).await["status"], "warned");
    world.check_after(DAY / 4).await;
    let suspended = world.show(&domain).await;
    assert_eq!(suspended["status"], "suspended");
    world.check_after(14 * DAY - 1).await;
    assert_eq!(world.show(&domain).await["status"], "suspended");
    world.check_after(DAY / 4).await;
    let released = world.show(&domain).await;
    assert_eq!(released["status"], "quarantined");
    assert!(released["quarantineUntil"].is_string(), "{released}");

    let mails = world.control.mails().await;
    assert_eq!(mails.len(), 3, "{mails:?}");
    for (mail, subject) in mails.iter().zip([
        "DNS records are missing",
        "the domain is suspended",
        "the domain is released",
    ]) {
        let subject = format!("Subject: app.example.com: {subject}");
        assert!(mail.contains(&subject), "{mail}");
        assert!(mail.contains("To: ada@example.com"), "{mail}");
        assert!(mail.contains("_svc-challenge.app.example.com"), "{mail}");
    }
    let kinds = ["domain.warned", "domain.suspended", "domain.released"];
    let log = format!("/api/workspaces/{}/audit", world.ada.workspace);
    let log = world.control.get(&log, &world.ada.token).await.expect(200);
    for kind in kinds {
        let entries = log["entries"].as_array().unwrap().iter();
        let found = entries.filter(|entry| entry["action"] == kind).count();
        assert_eq!(found, 1, "{kind}");
    }
}

async fn records_that_return_verify_a_domain_again(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.verified("app.example.com").await;
    world.remove_records(&domain);
    world.check_after(DAY).await;
    assert_eq!(world.show(&domain).await["status"], "warned");
    world.dns.enter(0, &domain);
    world.check_after(DAY / 4).await;
    let verified = world.show(&domain).await;
    assert_eq!(verified["status"], "verified");
    assert!(verified.get("failingSince").is_none(), "{verified}");

    world.remove_records(&domain);
    for wait in [DAY, 3 * DAY] {
        world.check_after(wait).await;
    }
    assert_eq!(world.show(&domain).await["status"], "suspended");
    world.dns.enter(0, &domain);
    // At the request of the project.
    assert_eq!(world.verify(&domain).await["status"], "verified");
}

/// Otherwise a member who checks a domain often would keep the owners from learning of it.
async fn a_check_on_request_also_sends_the_mail(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.verified("app.example.com").await;
    world.remove_records(&domain);
    assert_eq!(world.verify(&domain).await["status"], "warned");
    let mails = world.control.mails().await;
    assert_eq!(mails.len(), 1, "{mails:?}");
    assert!(mails[0].contains("DNS records are missing"), "{mails:?}");
}

async fn a_clock_that_was_set_back_stops_no_check(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("app.example.com").await;
    world.control.clock.advance(120);
    assert_eq!(world.verify(&domain).await["status"], "pending");
    world.control.clock.advance(-60);
    world.dns.enter(0, &domain);
    assert_eq!(world.verify(&domain).await["status"], "verified");
}

/// Removes the records of a verified domain until the project loses it.
async fn release(world: &World, domain: &Value) {
    world.remove_records(domain);
    for wait in [DAY, 3 * DAY, 14 * DAY] {
        world.check_after(wait).await;
    }
    assert_eq!(world.show(domain).await["status"], "quarantined");
}

async fn a_released_name_belongs_to_its_project_for_a_while(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.verified("app.example.com").await;
    release(&world, &domain).await;
    let eve = world.control.person("eve").await;
    let other = world.control.project(&eve).await;
    let add = async || {
        let body = json!({"hostname": "app.example.com"});
        call(&world.control, (&eve, &other), Method::POST, "", Some(body)).await
    };
    assert_eq!(add().await.refused(409).0, "domain_taken");
    // The task does not end the quarantine, even if the records return.
    world.dns.enter(0, &domain);
    world.check_after(DAY).await;
    assert_eq!(world.show(&domain).await["status"], "quarantined");
    assert_eq!(world.verify(&domain).await["status"], "verified");

    release(&world, &domain).await;
    world.control.clock.advance(30 * DAY - 1);
    assert_eq!(add().await.refused(409).0, "domain_taken");
    world.control.clock.advance(1);
    // The quarantine has ended, also before the task has deleted the domain.
    let hers = add().await.expect(201);
    world.dns.enter(0, &hers);
    world.control.clock.advance(6);
    let path = format!("/{}/verify", id(&hers));
    let verified = call(&world.control, (&eve, &other), Method::POST, &path, None).await;
    assert_eq!(verified.expect(200)["status"], "verified");
    let list = world.call(Method::GET, "", None).await.expect(200);
    assert_eq!(list, json!({"domains": []}));
}

async fn a_pending_domain_is_verified_by_the_task_or_deleted(control: TestControl) {
    let world = World::new(control).await;
    let entered = world.add("a.example.com").await;
    let forgotten = world.add("b.example.com").await;
    world.dns.enter(0, &entered);
    world.check_after(5 * 60 - 1).await;
    assert_eq!(world.show(&entered).await["status"], "pending");
    world.check_after(1).await;
    assert_eq!(world.show(&entered).await["status"], "verified");
    assert_eq!(world.show(&forgotten).await["status"], "pending");
    world.check_after(30 * DAY).await;
    let path = format!("/{}", id(&forgotten));
    world.call(Method::GET, &path, None).await.refused(404);
    assert_eq!(world.show(&entered).await["status"], "verified");
}

async fn the_task_leaves_a_pending_domain_of_a_held_name(control: TestControl) {
    let world = World::new(control).await;
    let eve = world.control.person("eve").await;
    let other = world.control.project(&eve).await;
    let body = json!({"hostname": "app.example.com"});
    let hers = call(&world.control, (&eve, &other), Method::POST, "", Some(body)).await;
    let hers = hers.expect(201);
    let mine = world.verified("app.example.com").await;
    // Both have an ownership record, and the traffic leads to her engine.
    world.dns.remove("app.example.com");
    world.dns.enter(0, &hers);
    world.check_after(5 * 60).await;
    let path = format!("/{}", id(&hers));
    let shown = call(&world.control, (&eve, &other), Method::GET, &path, None).await;
    assert_eq!(shown.expect(200)["status"], "pending");
    // The other project loses the name only with time.
    world.check_after(DAY).await;
    assert_eq!(world.show(&mine).await["status"], "warned");
}
