//! Name servers: the way to them, their answers, and the limits of both.

use serde_json::{Value, json};

use super::{World, results};
use crate::support::name_server::{Mode, NameServers};
use crate::support::{TestControl, both};

both! {
    every_name_server_must_have_the_records,
    one_name_server_cannot_delegate_a_name_elsewhere,
    servers_that_do_not_answer_are_ignored,
    a_missing_zone_is_described,
    name_servers_of_private_networks_are_not_asked,
    traffic_leads_to_the_engine_through_aliases_or_addresses,
    an_alias_proves_no_ownership,
    a_truncated_answer_is_requested_over_tcp,
    endless_delegations_end,
}

/// Delegates `example.com` to the second and the third server.
fn delegate(world: &World) {
    let servers = [
        ("ns1.example.com", Some(NameServers::address(1))),
        ("ns2.example.com", Some(NameServers::address(2))),
    ];
    world.dns.delegate("example.com", &servers);
}

fn checks(domain: &Value) -> String {
    domain["checks"].to_string()
}

async fn every_name_server_must_have_the_records(control: TestControl) {
    let world = World::new(control).await;
    delegate(&world);
    let domain = world.add("app.example.com").await;
    world.dns.enter(1, &domain);
    let checked = world.verify(&domain).await;
    assert_eq!(checked["status"], "pending");
    assert_eq!(results(&checked), ["inconsistent", "inconsistent"]);
    assert!(checks(&checked).contains("ns2.example.com"), "{checked}");
    world.dns.enter(2, &domain);
    let checked = world.verify(&domain).await;
    assert_eq!(checked["status"], "verified");
    // A server that loses them, for example during a change, does no harm.
    world.dns.remove("app.example.com");
    world
        .dns
        .add(1, "CNAME", "app.example.com", &world.engine());
    let checked = world.verify(&domain).await;
    assert_eq!(checked["status"], "verified");
    assert_eq!(results(&checked), ["found", "inconsistent"]);
    // The root was only asked for the way.
    assert!(world.dns.asked(0) < world.dns.asked(1) + world.dns.asked(2));
}

/// A forgotten name server of a zone may belong to another party by now.
async fn one_name_server_cannot_delegate_a_name_elsewhere(control: TestControl) {
    let world = World::new(control).await;
    delegate(&world);
    let domain = world.add("app.example.com").await;
    let elsewhere = [("ns.app.example.com", Some(NameServers::address(3)))];
    world.dns.delegate_from(1, "app.example.com", &elsewhere);
    world.dns.enter(3, &domain);
    let checked = world.verify(&domain).await;
    assert_eq!(checked["status"], "pending");
    assert_eq!(results(&checked), ["unreachable", "unreachable"]);
    let reason = "do not agree on a delegation; enter the same NS records at all of them";
    assert!(checks(&checked).contains(reason), "{checked}");
    assert_eq!(world.dns.asked(3), 0);
    // The delegation counts when all servers have it.
    world.dns.delegate_from(2, "app.example.com", &elsewhere);
    let checked = world.verify(&domain).await;
    assert_eq!(checked["status"], "verified", "{checked}");
}

async fn servers_that_do_not_answer_are_ignored(control: TestControl) {
    let world = World::new(control).await;
    delegate(&world);
    let domain = world.add("app.example.com").await;
    world.dns.enter(2, &domain);
    for mode in [Mode::Fails, Mode::IsLame] {
        world.dns.set_mode(1, mode);
        let checked = world.verify(&domain).await;
        assert_eq!(results(&checked), ["found", "found"], "{mode:?}");
    }
    world.dns.set_mode(2, Mode::Fails);
    let checked = world.verify(&domain).await;
    assert_eq!(results(&checked), ["unreachable", "unreachable"]);
    assert_eq!(checked["status"], "verified");
    assert!(
        checks(&checked).contains("the zone example.com"),
        "{checked}"
    );
}

/// The result names the name without a zone, and the next step.
async fn a_missing_zone_is_described(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("app.example.com").await;
    // The root answers itself: the domain is not registered.
    let checked = world.verify(&domain).await;
    assert_eq!(results(&checked), ["missing", "missing"]);
    for (check, name) in [
        (0, "_svc-challenge.app.example.com"),
        (1, "app.example.com"),
    ] {
        let detail = checked["checks"][check]["detail"].as_str().unwrap();
        let reason = format!("the root servers have no delegation for {name}.");
        assert!(detail.contains(&reason), "{detail}");
        assert!(detail.contains("at the registrar. Enter: "), "{detail}");
    }
    // A root without a usable response.
    world.dns.set_mode(0, Mode::Fails);
    let checked = world.verify(&domain).await;
    assert_eq!(results(&checked), ["unreachable", "unreachable"]);
    let text = checks(&checked);
    assert!(text.contains("no delegation of app.example.com"), "{text}");
    assert!(text.contains("domains.root_servers"), "{text}");
    assert!(!text.contains("zone ."), "{text}");
    // The zone exists, its servers have no address.
    world.dns.set_mode(0, Mode::Answers);
    world
        .dns
        .delegate("example.com", &[("ns.example.net", None)]);
    let checked = world.verify(&domain).await;
    let text = checks(&checked);
    assert!(
        text.contains("the zone example.com have no address"),
        "{text}"
    );
    // Only the record is missing.
    let servers = [("ns1.example.org", Some(NameServers::address(1)))];
    world.dns.delegate("example.org", &servers);
    let other = world.add("app.example.org").await;
    let checked = world.verify(&other).await;
    let detail = checked["checks"][0]["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("The record is missing. Enter: TXT "),
        "{detail}"
    );
}

/// The root servers are the operator's. The servers of a zone are its owner's.
async fn name_servers_of_private_networks_are_not_asked(control: TestControl) {
    let dns = NameServers::start().await;
    let mut section = dns.section();
    section["allow_private_nameservers"] = json!(false);
    let control = control.configured(json!({"domains": section})).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let world = World {
        control,
        dns,
        ada,
        project,
    };
    delegate(&world);
    let domain = world.add("app.example.com").await;
    world.dns.enter(1, &domain);
    world.dns.enter(2, &domain);
    let checked = world.verify(&domain).await;
    assert_eq!(checked["status"], "pending");
    assert_eq!(results(&checked), ["unreachable", "unreachable"]);
    let text = checks(&checked);
    for part in ["no public address", "`domains.allow_private_nameservers`"] {
        assert!(text.contains(part), "{text}");
    }
    // Without glue, the address is also checked.
    world.dns.add(0, "A", "ns.elsewhere.example", "127.0.0.2");
    let servers = [("ns.elsewhere.example", None)];
    world.dns.delegate("example.org", &servers);
    let other = world.add("app.example.org").await;
    let checked = world.verify(&other).await;
    assert!(checks(&checked).contains("no public address"), "{checked}");
    assert_eq!((world.dns.asked(1), world.dns.asked(2)), (0, 0));
}

async fn traffic_leads_to_the_engine_through_aliases_or_addresses(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("app.example.com").await;
    let engine = world.engine();
    let engine = engine.as_str();
    let proof = &domain["records"][0];
    world.dns.add(
        0,
        "TXT",
        proof["name"].as_str().unwrap(),
        proof["value"].as_str().unwrap(),
    );
    let name = "app.example.com";
    for (records, result, seen) in [
        (vec![("CNAME", name, engine)], "found", ""),
        (
            vec![
                ("CNAME", name, "alias.example.com"),
                ("CNAME", "alias.example.com", engine),
            ],
            "found",
            "",
        ),
        (
            vec![("CNAME", name, "other.example.com")],
            "different",
            "CNAME other.example.com",
        ),
        // A loop ends.
        (
            vec![
                ("CNAME", name, "loop.example.com"),
                ("CNAME", "loop.example.com", name),
            ],
            "different",
            "CNAME loop.example.com",
        ),
        // The engine's host is not resolved yet.
        (vec![("A", name, "192.0.2.10")], "different", "192.0.2.10"),
        (
            vec![("A", engine, "192.0.2.10"), ("A", name, "192.0.2.10")],
            "found",
            "",
        ),
        (
            vec![
                ("A", engine, "192.0.2.10"),
                ("AAAA", engine, "2001:db8::10"),
                ("AAAA", name, "2001:db8::10"),
            ],
            "found",
            "",
        ),
        // One of two addresses would lead visitors elsewhere.
        (
            vec![
                ("A", engine, "192.0.2.10"),
                ("A", name, "192.0.2.10"),
                ("AAAA", name, "2001:db8::66"),
            ],
            "different",
            "2001:db8::66",
        ),
        (vec![("TXT", name, "no address")], "missing", ""),
    ] {
        for host in [name, "alias.example.com", "loop.example.com", engine] {
            world.dns.remove(host);
        }
        for (kind, host, value) in &records {
            world.dns.add(0, kind, host, value);
        }
        let checked = world.verify(&domain).await;
        assert_eq!(results(&checked), ["found", result], "{records:?}");
        let shown = checked["checks"][1]["seen"].to_string();
        assert!(shown.contains(seen), "{records:?}: {shown}");
    }
    // The record of a wildcard is at its own name.
    let wildcard = world.add("*.app.example.com").await;
    world.dns.enter(0, &wildcard);
    let checked = world.verify(&wildcard).await;
    assert_eq!(results(&checked), ["found", "found"]);
}

/// The target of an alias may belong to another party.
async fn an_alias_proves_no_ownership(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("app.example.com").await;
    let proof = domain["records"][0]["value"].as_str().unwrap();
    world.dns.add(0, "TXT", "elsewhere.example.net", proof);
    let challenge = "_svc-challenge.app.example.com";
    world
        .dns
        .add(0, "CNAME", challenge, "elsewhere.example.net");
    let checked = world.verify(&domain).await;
    assert_eq!(results(&checked)[0], "different");
    assert!(checks(&checked).contains("CNAME elsewhere.example.net"));
}

async fn a_truncated_answer_is_requested_over_tcp(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("app.example.com").await;
    world.dns.enter(0, &domain);
    world.dns.set_mode(0, Mode::Truncates);
    let checked = world.verify(&domain).await;
    assert_eq!(results(&checked), ["found", "found"]);
}

/// A server that always refers to another name causes a limited number of queries.
async fn endless_delegations_end(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("app.example.com").await;
    world.dns.enter(0, &domain);
    world.dns.set_mode(0, Mode::Refers);
    let checked = world.verify(&domain).await;
    assert_eq!(results(&checked), ["unreachable", "unreachable"]);
    assert!(world.dns.asked(0) <= 200, "{}", world.dns.asked(0));
}
