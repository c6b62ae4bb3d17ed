//! Filters of audit logs.

use http::{Method, StatusCode};
use serde_json::json;
use store::members::Role;

use super::workspaces::{join, team};
use crate::support::{TestControl, both};

both! {
    the_audit_is_filtered_by_the_platform,
}

/// The filters also hold for the person's own log. Pages count only entries that match.
async fn the_audit_is_filtered_by_the_platform(control: TestControl) {
    let ada_id = control.person("Ada").await.user;
    let max_id = control.person("Max").await.user;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    join(&control, &id, max_id, Role::Admin).await;
    let path = format!("/api/workspaces/{id}");
    let member = format!("{path}/members/{max_id}");
    for role in ["member", "admin"] {
        control.clock.advance(1);
        ada.api(Method::PATCH, &member, json!({"role": role})).await;
    }
    let middle = control.now();
    control.clock.advance(1);
    let mut max = control.signed_in("Max").await;
    max.api(Method::PATCH, &path, json!({"name": "Looms"}))
        .await;
    let audit = format!("{path}/audit");
    for (query, expected) in [
        ("action=member.changed".to_owned(), 2),
        ("action=member.changed&pageSize=1&page=2".to_owned(), 2),
        (format!("actor={max_id}"), 1),
        (format!("actor={ada_id}&target={max_id}"), 2),
        (format!("target={id}"), 2),
        ("actor=platform".to_owned(), 0),
        (format!("start={middle}&action=member.changed"), 1),
        (format!("end={middle}"), 2),
    ] {
        let page = ada.open(&format!("{audit}?{query}")).await;
        assert_eq!(page.status, StatusCode::OK, "{query}: {}", page.text);
        assert_eq!(page.json()["total"], expected, "{query}: {}", page.text);
    }
    let own = format!("/api/user/audit?target={max_id}&action=member.changed");
    assert_eq!(ada.open(&own).await.json()["total"], 2);
    assert_eq!(max.open(&own).await.json()["total"], 0);
    for (address, field) in [
        (format!("{audit}?action=Changed!"), "action"),
        (format!("{audit}?actor=ada@example.com"), "actor"),
        (format!("{audit}?target=a/b"), "target"),
        (format!("{audit}?start=today"), "start"),
        (format!("{audit}?end=today"), "end"),
        (format!("{audit}?start={middle}&end={middle}"), "start"),
        // A person is the only actor of the own log.
        (format!("/api/user/audit?actor={ada_id}"), "actor"),
    ] {
        let refused = ada.open(&address).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{address}");
        assert_eq!(refused.json()["field"], field, "{address}");
    }
}
