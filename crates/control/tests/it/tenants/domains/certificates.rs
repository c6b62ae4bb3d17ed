//! Certificates that projects upload for their domains.

use control::runtime::jobs::pass;
use http::Method;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{DAY, World, call, id};
use crate::support::{TestControl, both};

both! {
    a_certificate_is_uploaded_shown_and_removed,
    a_refused_certificate_changes_nothing,
    owners_are_notified_once_of_a_certificate_that_expires_soon,
}

/// A certificate until the year 4096, and its key.
fn make(name: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn body(made: &CertifiedKey<KeyPair>) -> Value {
    json!({
        "certificate": made.cert.pem(),
        "privateKey": made.signing_key.serialize_pem(),
    })
}

fn count(list: &Value, member: &str, value: &str) -> usize {
    let list = list.as_array().unwrap().iter();
    list.filter(|one| one[member] == value).count()
}

/// Uploads a certificate that expires on a day of 2026.
async fn upload_until(world: &World, name: &str, (month, day): (u8, u8)) -> Value {
    let domain = world.verified(name).await;
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(2025, 12, 1);
    params.not_after = date_time_ymd(2026, month, day);
    let sent = json!({
        "certificate": params.self_signed(&key).unwrap().pem(),
        "privateKey": key.serialize_pem(),
    });
    let path = format!("/{}/certificate", id(&domain));
    world.call(Method::PUT, &path, Some(sent)).await.expect(200);
    domain
}

/// Two weeks before the end. A certificate of a few days gets no mail.
async fn owners_are_notified_once_of_a_certificate_that_expires_soon(control: TestControl) {
    let world = World::new(control).await;
    let domain = upload_until(&world, "app.example.com", (2, 1)).await;
    upload_until(&world, "brief.example.com", (1, 10)).await;
    upload_until(&world, "later.example.com", (3, 1)).await;
    let notices = async || {
        pass(&world.control.app, &CancellationToken::new()).await;
        let mut mails = world.control.mails().await;
        mails.retain(|mail| mail.contains("the certificate expires soon"));
        mails
    };
    world.control.clock.advance(16 * DAY);
    assert_eq!(notices().await, [""; 0]);
    world.control.clock.advance(DAY);
    let sent = notices().await;
    let [mail] = &sent[..] else {
        panic!("one mail: {sent:?}")
    };
    for part in [
        "To: ada@example.com",
        "app.example.com",
        "2026-02-01 00:00 UTC",
        id(&domain),
    ] {
        assert!(mail.contains(part), "{part}: {mail}");
    }
    assert_eq!(notices().await.len(), 1, "once");
}

/// CP-11: each change has an audit entry and an event, and nothing that is read has the key.
async fn a_certificate_is_uploaded_shown_and_removed(control: TestControl) {
    let world = World::new(control).await;
    let domain = world.verified("app.example.com").await;
    assert_eq!(domain["certificate"], json!({"source": "engine"}));
    let path = format!("/{}/certificate", id(&domain));
    let made = make("app.example.com");
    let uploaded = world.call(Method::PUT, &path, Some(body(&made))).await;
    let uploaded = uploaded.expect(200);
    let certificate = json!({"source": "uploaded", "expiresAt": "4096-01-01T00:00:00.000Z"});
    assert_eq!(uploaded["certificate"], certificate);
    assert_eq!(world.show(&domain).await, uploaded);
    // Checks keep it.
    assert_eq!(world.verify(&domain).await["certificate"], certificate);
    // Another one replaces it.
    let other = body(&make("*.example.com"));
    let path_of = path.as_str();
    world
        .call(Method::PUT, path_of, Some(other))
        .await
        .expect(200);
    for _ in 0..2 {
        world.call(Method::DELETE, path_of, None).await.expect(204);
    }
    let shown = world.show(&domain).await;
    assert_eq!(shown["certificate"], json!({"source": "engine"}));

    // The list of events ends before the time of the request.
    world.control.clock.advance(1);
    let token = &world.ada.token;
    let log = format!("/api/workspaces/{}/audit", world.ada.workspace);
    let log = world.control.get(&log, token).await.expect(200);
    let events = format!("/api/projects/tunnels/{}/events", world.project.id);
    let events = world.control.get(&events, token).await.expect(200);
    for (kind, times) in [
        ("domain.certificate_uploaded", 2),
        ("domain.certificate_removed", 1),
    ] {
        let logged = count(&log["entries"], "action", kind);
        assert_eq!(logged, times, "{kind}: {log}");
        let stored = count(&events["events"], "eventType", kind);
        assert_eq!(stored, times, "{kind}: {events}");
    }
    for read in [uploaded, log, events] {
        assert!(!read.to_string().contains("PRIVATE KEY"), "{read}");
    }
}

async fn a_refused_certificate_changes_nothing(control: TestControl) {
    let world = World::new(control).await;
    let pending = world.add("b.example.com").await;
    let path = format!("/{}/certificate", id(&pending));
    let made = body(&make("b.example.com"));
    let refused = world.call(Method::PUT, &path, Some(made)).await;
    let (code, _) = refused.refused(409);
    assert_eq!(code, "domain_not_verified");

    let domain = world.verified("app.example.com").await;
    let path = format!("/{}/certificate", id(&domain));
    let (made, other) = (make("app.example.com"), make("app.example.com"));
    let with = |member: &str, value: Value| {
        let mut body = body(&made);
        body[member] = value;
        body
    };
    for (body, field) in [
        (body(&make("other.example.com")), "certificate"),
        (with("certificate", json!("")), "certificate"),
        (
            with("privateKey", json!(other.signing_key.serialize_pem())),
            "privateKey",
        ),
        (with("privateKey", json!("x".repeat(9_000))), "privateKey"),
    ] {
        let refused = world.call(Method::PUT, &path, Some(body)).await;
        assert_eq!(refused.refused(400).1.as_deref(), Some(field));
        assert!(!refused.text.contains("PRIVATE KEY"), "{}", refused.text);
    }
    let eve = world.control.person("eve").await;
    let hers = world.control.project(&eve).await;
    for project in [&hers, &world.project] {
        let sent = Some(body(&made));
        let of_eve = (&eve, project);
        let refused = call(&world.control, of_eve, Method::PUT, &path, sent).await;
        refused.refused(404);
        let refused = call(&world.control, of_eve, Method::DELETE, &path, None).await;
        refused.refused(404);
    }
    let shown = world.show(&domain).await;
    assert_eq!(shown["certificate"], json!({"source": "engine"}));
}
