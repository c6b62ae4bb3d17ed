//! Names that can be added, and their owners.

use http::Method;
use serde_json::{Value, json};

use super::{World, call, id, results};
use crate::support::{TestControl, both};

both! {
    a_domain_is_added_verified_and_removed,
    names_that_cannot_be_added_are_refused_with_the_reason,
    a_name_of_another_project_is_refused,
    records_of_a_former_project_prove_nothing,
    names_above_and_below_need_their_own_record,
    a_plan_limits_the_domains_of_a_project,
    additions_of_one_user_are_limited,
    a_deleted_project_holds_no_domain,
    domain_connect_is_found_at_the_registered_name,
}

/// CP-11: the whole life of a domain, with its audit entries and events.
async fn a_domain_is_added_verified_and_removed(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("Bücher.Example.com").await;
    let proof = domain["records"][0]["value"].as_str().unwrap();
    assert!(proof.starts_with("svc-domain-verification="), "{proof}");
    // At least 128 bits.
    assert!(proof.len() >= 24 + 26, "{proof}");
    let name = "xn--bcher-kva.example.com";
    let expected = json!({
        "id": domain["id"],
        "projectId": world.project.id,
        "hostname": name,
        "kind": "hostname",
        "certificateValidation": "tls_alpn_01",
        "certificate": {"source": "engine"},
        "status": "pending",
        "records": [
            {
                "purpose": "ownership",
                "type": "TXT",
                "name": format!("_svc-challenge.{name}"),
                "value": proof,
            },
            {"purpose": "traffic", "type": "CNAME", "name": name, "value": world.engine()},
        ],
        "checks": [],
        "createdAt": "2026-01-01T00:00:00.000Z",
    });
    assert_eq!(domain, expected);
    // The same name again is the same domain.
    assert_eq!(world.add(name).await, expected);
    let list = world.call(Method::GET, "", None).await.expect(200);
    assert_eq!(list, json!({"domains": [expected]}));

    let checked = world.verify(&domain).await;
    assert_eq!(checked["status"], "pending");
    assert_eq!(results(&checked), ["missing", "missing"]);
    let details = checked["checks"].to_string();
    for part in [
        format!("TXT _svc-challenge.{name} \\\"{proof}\\\""),
        format!("CNAME {name} {}", world.engine()),
    ] {
        assert!(details.contains(&part), "{details}");
    }
    assert_eq!(world.show(&domain).await, checked);
    world.dns.enter(0, &domain);
    // A client that polls does not cause a check each time.
    let asked = world.dns.asked(0);
    let path = format!("/{}/verify", id(&domain));
    let same = world.call(Method::POST, &path, None).await.expect(200);
    assert_eq!((same, world.dns.asked(0)), (checked, asked));

    let verified = world.verify(&domain).await;
    assert_eq!(verified["status"], "verified");
    assert_eq!(results(&verified), ["found", "found"]);
    assert_eq!(verified["verifiedAt"], "2026-01-01T00:00:12.000Z");
    let path = format!("/{}", id(&domain));
    world.call(Method::DELETE, &path, None).await.expect(204);
    for method in [Method::GET, Method::DELETE] {
        world.call(method, &path, None).await.refused(404);
    }
    world.call(Method::GET, "/nothing", None).await.refused(404);

    // The list of events ends before the time of the request.
    world.control.clock.advance(1);
    let token = &world.ada.token;
    let log = format!("/api/workspaces/{}/audit", world.ada.workspace);
    let log = world.control.get(&log, token).await.expect(200);
    let events = format!("/api/projects/tunnels/{}/events", world.project.id);
    let events = world.control.get(&events, token).await.expect(200);
    for kind in ["domain.created", "domain.verified", "domain.deleted"] {
        assert_eq!(count(&log["entries"], "action", kind), 1, "{kind}: {log}");
        let stored = count(&events["events"], "eventType", kind);
        assert_eq!(stored, 1, "{kind}: {events}");
    }
}

fn count(list: &Value, member: &str, value: &str) -> usize {
    let list = list.as_array().unwrap().iter();
    list.filter(|one| one[member] == value).count()
}

async fn names_that_cannot_be_added_are_refused_with_the_reason(control: TestControl) {
    let world = World::new(control).await;
    let refused = async |body: &Value| {
        let answer = world.call(Method::POST, "", Some(body.clone())).await;
        let (code, field) = answer.refused(400);
        (code, field.unwrap_or_default())
    };
    for (hostname, code) in [
        ("app_1.example.com", "invalid_domain"),
        ("https://app.example.com", "invalid_domain"),
        ("app.example.com:443", "invalid_domain"),
        ("10.0.0.1", "domain_is_address"),
        ("localhost", "domain_is_single_label"),
        ("a.*.example.com", "domain_wildcard_misplaced"),
        ("co.uk", "domain_is_public_suffix"),
        ("*.github.io", "domain_is_public_suffix"),
        ("svc.example", "domain_is_platform"),
        ("x.svc.example", "domain_is_platform"),
        ("a.t.engine.example", "domain_is_platform"),
        ("*.engine.example", "domain_is_platform"),
    ] {
        let found = refused(&json!({"hostname": hostname})).await;
        assert_eq!(
            found,
            (code.to_owned(), "hostname".to_owned()),
            "{hostname}"
        );
    }
    for (hostname, field, value) in [
        ("*.a.example.com", "kind", json!("hostname")),
        (
            "*.a.example.com",
            "certificateValidation",
            json!("tls_alpn_01"),
        ),
        ("a.example.com", "x", json!(1)),
        ("a.example.com", "kind", Value::Null),
    ] {
        let mut body = json!({"hostname": hostname});
        body[field] = value;
        let found = refused(&body).await;
        assert_eq!(
            found,
            ("invalid_request".to_owned(), field.to_owned()),
            "{body}"
        );
    }
    let body = json!({"hostname": "app.example.com", "kind": "wildcard"});
    let wildcard = world.call(Method::POST, "", Some(body)).await.expect(201);
    assert_eq!(wildcard["hostname"], "*.app.example.com");
    assert_eq!(wildcard["kind"], "wildcard");
    assert_eq!(wildcard["certificateValidation"], "dns_01");
    let challenge = &wildcard["records"][0]["name"];
    assert_eq!(challenge, "_svc-challenge.app.example.com");
}

/// The refusal does not reveal the project. A name that is only pending blocks no other project.
async fn a_name_of_another_project_is_refused(control: TestControl) {
    let world = World::new(control).await;
    let eve = world.control.person("eve").await;
    let other = world.control.project(&eve).await;
    let body = json!({"hostname": "app.example.com"});
    let hers = call(&world.control, (&eve, &other), Method::POST, "", Some(body)).await;
    let hers = hers.expect(201);
    let mine = world.verified("app.example.com").await;
    assert_ne!(mine["records"][0]["value"], hers["records"][0]["value"]);

    // Also with records of her own.
    world.dns.add(
        0,
        "TXT",
        "_svc-challenge.app.example.com",
        hers["records"][0]["value"].as_str().unwrap(),
    );
    world.dns.remove("app.example.com");
    let target = hers["records"][1]["value"].as_str().unwrap();
    world.dns.add(0, "CNAME", "app.example.com", target);
    let path = format!("/{}/verify", id(&hers));
    let verify = call(&world.control, (&eve, &other), Method::POST, &path, None).await;
    assert_eq!(verify.refused(409).0, "domain_taken");
    let third = world.control.project(&eve).await;
    let body = json!({"hostname": "APP.example.com"});
    let add = call(&world.control, (&eve, &third), Method::POST, "", Some(body)).await;
    let expected = ("domain_taken".to_owned(), Some("hostname".to_owned()));
    assert_eq!(add.refused(409), expected);
    for answer in [verify, add] {
        let text = answer.text;
        assert!(!text.contains(world.project.id.as_str()), "{text}");
        assert!(!text.contains(&world.project.endpoint), "{text}");
    }
}

/// Dangling records: those of a former project are not proof for another one, although the traffic
/// still leads to the platform.
async fn records_of_a_former_project_prove_nothing(control: TestControl) {
    let world = World::new(control).await;
    let mine = world.verified("app.example.com").await;
    let path = format!("/{}", id(&mine));
    world.call(Method::DELETE, &path, None).await.expect(204);
    let eve = world.control.person("eve").await;
    let other = world.control.project(&eve).await;
    let body = json!({"hostname": "app.example.com"});
    let hers = call(&world.control, (&eve, &other), Method::POST, "", Some(body)).await;
    let hers = hers.expect(201);
    world.control.clock.advance(6);
    let path = format!("/{}/verify", id(&hers));
    let checked = call(&world.control, (&eve, &other), Method::POST, &path, None).await;
    let checked = checked.expect(200);
    assert_eq!(checked["status"], "pending");
    assert_eq!(results(&checked)[0], "different");
    // The same project also needs another record for another domain.
    let again = world.add("app.example.com").await;
    assert_ne!(again["records"][0]["value"], mine["records"][0]["value"]);
    assert_eq!(world.verify(&again).await["status"], "pending");
}

async fn names_above_and_below_need_their_own_record(control: TestControl) {
    let world = World::new(control).await;
    let mine = world.verified("app.example.com").await;
    let eve = world.control.person("eve").await;
    let other = world.control.project(&eve).await;
    for name in [
        "a.app.example.com",
        "*.app.example.com",
        "example.com",
        "*.example.com",
    ] {
        let body = json!({ "hostname": name });
        let hers = call(&world.control, (&eve, &other), Method::POST, "", Some(body)).await;
        let hers = hers.expect(201);
        // Traffic alone is not sufficient.
        let target = hers["records"][1]["value"].as_str().unwrap();
        world.dns.add(0, "CNAME", name, target);
        world.control.clock.advance(6);
        let path = format!("/{}/verify", id(&hers));
        let verify = async || {
            let own = (&eve, &other);
            let answer = call(&world.control, own, Method::POST, &path, None).await;
            answer.expect(200)
        };
        let checked = verify().await;
        assert_eq!(checked["status"], "pending", "{name}");
        assert_eq!(results(&checked)[1], "found", "{name}");
        let challenge = hers["records"][0]["name"].as_str().unwrap();
        let proof = hers["records"][0]["value"].as_str().unwrap();
        world.dns.add(0, "TXT", challenge, proof);
        // Wildcards have a third record.
        if let Some(delegation) = hers["records"].get(2) {
            let text = |member: &str| delegation[member].as_str().unwrap();
            world.dns.add(0, "CNAME", text("name"), text("value"));
        }
        world.control.clock.advance(6);
        assert_eq!(verify().await["status"], "verified", "{name}");
    }
    assert_eq!(world.show(&mine).await["status"], "verified");
}

async fn a_plan_limits_the_domains_of_a_project(control: TestControl) {
    let world = World::with_plan(control, json!({"plan": "basic", "domains": 2})).await;
    world.add("a.example.com").await;
    let second = world.add("b.example.com").await;
    let body = json!({"hostname": "c.example.com"});
    let refused = world.call(Method::POST, "", Some(body)).await.refused(409);
    assert_eq!(refused.0, "not_in_plan");
    // A domain that exists is not another one.
    assert_eq!(world.add("b.example.com").await, second);
    let path = format!("/{}", id(&second));
    world.call(Method::DELETE, &path, None).await.expect(204);
    world.add("c.example.com").await;
    let plan = format!("/api/projects/tunnels/{}/plan", world.project.id);
    let plan = world.control.get(&plan, &world.ada.token).await.expect(200);
    assert_eq!(plan["domains"], 2);
}

/// Each addition may cause an order of a certificate, also if the domain is removed again.
async fn additions_of_one_user_are_limited(control: TestControl) {
    let world = World::with_plan(control, json!({"plan": "basic", "domains": 0})).await;
    let add = async || {
        let body = json!({"hostname": "app.example.com"});
        world.call(Method::POST, "", Some(body)).await
    };
    for _ in 0..=100 {
        assert_eq!(add().await.refused(409).0, "not_in_plan");
    }
    let refused = add().await;
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert_eq!(refused.header("retry-after"), "30");
    world.control.clock.advance(30);
    assert_eq!(add().await.refused(409).0, "not_in_plan");
}

async fn a_deleted_project_holds_no_domain(control: TestControl) {
    let world = World::new(control).await;
    world.verified("app.example.com").await;
    let project = format!("/api/projects/tunnels/{}", world.project.id);
    let deleted = world.control.delete(&project, &world.ada.token).await;
    deleted.expect(204);
    let next = world.control.project(&world.ada).await;
    let body = json!({"hostname": "app.example.com"});
    let own = (&world.ada, &next);
    let added = call(&world.control, own, Method::POST, "", Some(body)).await;
    assert_eq!(added.expect(201)["status"], "pending");
}

async fn domain_connect_is_found_at_the_registered_name(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.add("a.app.example.co.uk").await;
    let path = format!("/{}/domain-connect", id(&domain));
    let without = world.call(Method::GET, &path, None).await.expect(200);
    assert_eq!(without["supported"], false);
    assert!(without.get("service").is_none(), "{without}");
    let name = "_domainconnect.example.co.uk";
    world.dns.add(0, "TXT", name, "<b>not a host</b>");
    let invalid = world.call(Method::GET, &path, None).await.expect(200);
    assert_eq!(invalid["supported"], false);
    world.dns.add(0, "TXT", name, "connect.dns.example/v2");
    let with = world.call(Method::GET, &path, None).await.expect(200);
    assert_eq!(with["supported"], true);
    assert_eq!(with["service"], "connect.dns.example/v2");
}
