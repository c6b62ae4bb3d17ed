//! Project-wide policy over HTTP (ED-8).

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{TestControl, both};
use crate::tenants::projects::{path, project};

both! {
    ed_8_settings_are_patched_replaced_and_reset,
    parallel_changes_are_both_kept,
}

/// ED-8: defaults, changes, `null`, replacement, reset.
async fn ed_8_settings_are_patched_replaced_and_reset(control: TestControl) {
    let person = control.person("ada").await;
    let path = format!("{}/settings", path(&project(&control, &person).await));
    let token = &person.token;
    let call = async |method: Method, body: Option<Value>| {
        control
            .send(method, &path, Some(token), body.as_ref())
            .await
    };
    let defaults = json!({"publicAccessPolicy": "allowed", "publishedTcpEnabled": true});
    assert_eq!(call(Method::GET, None).await.expect(200), defaults);

    let patch = json!({"publicAccessPolicy": "auth-required", "trustedIps": ["192.0.2.9/24"]});
    let patched = call(Method::PATCH, Some(patch)).await.expect(200);
    assert_eq!(
        patched,
        json!({
            "publicAccessPolicy": "auth-required", "publishedTcpEnabled": true, "trustedIps": ["192.0.2.0/24"],
        })
    );
    assert_eq!(call(Method::GET, None).await.expect(200), patched);
    let patched = call(
        Method::PATCH,
        Some(json!({"trustedIps": null, "minTlsVersion": "tls1.3"})),
    )
    .await
    .expect(200);
    assert_eq!(
        patched,
        json!({
            "publicAccessPolicy": "auth-required", "publishedTcpEnabled": true, "minTlsVersion": "tls1.3",
        })
    );
    let put = call(Method::PUT, Some(json!({"publishedTcpEnabled": false})))
        .await
        .expect(200);
    assert_eq!(
        put,
        json!({"publicAccessPolicy": "allowed", "publishedTcpEnabled": false})
    );
    call(Method::DELETE, None).await.expect(204);
    assert_eq!(call(Method::GET, None).await.expect(200), defaults);

    for (method, body, field) in [
        (
            Method::PATCH,
            json!({"minTlsVersion": "tls1.1"}),
            "minTlsVersion",
        ),
        (
            Method::PATCH,
            json!({"trustedIps": ["192.0.2.1", "x"]}),
            "trustedIps.1",
        ),
        (Method::PATCH, json!({"colour": 1}), "colour"),
        (
            Method::PUT,
            json!({"publishedTcpEnabled": null}),
            "publishedTcpEnabled",
        ),
        (Method::PUT, json!({"trustedIps": []}), "trustedIps"),
    ] {
        let refused = call(method, Some(body.clone())).await.refused(400);
        assert_eq!(refused.1.as_deref(), Some(field), "{body}");
    }
    // Without a geolocation file no country is known.
    let countries = call(Method::PATCH, Some(json!({"geoIp": {"deny": ["AQ"]}}))).await;
    assert_eq!(countries.refused(400).0, "feature_unavailable");
    assert_eq!(call(Method::GET, None).await.expect(200), defaults);
}

/// Two parallel changes do not undo each other.
async fn parallel_changes_are_both_kept(control: TestControl) {
    let control = Arc::new(control);
    let person = control.person("ada").await;
    let path = format!("{}/settings", path(&project(&control, &person).await));
    let token = &person.token;
    for patches in [
        [
            json!({"publishedTcpEnabled": false}),
            json!({"minTlsVersion": "tls1.2"}),
        ],
        [
            json!({"publishedTcpEnabled": null}),
            json!({"publicAccessPolicy": "forbidden"}),
        ],
    ] {
        let mut changes = JoinSet::new();
        for patch in patches {
            let (control, path, token) = (Arc::clone(&control), path.clone(), token.clone());
            changes.spawn(async move {
                control
                    .send(Method::PATCH, &path, Some(&token), Some(&patch))
                    .await
                    .expect(200)
            });
        }
        changes.join_all().await;
    }
    assert_eq!(
        control.get(&path, token).await.expect(200),
        json!({
            "publicAccessPolicy": "forbidden", "publishedTcpEnabled": true, "minTlsVersion": "tls1.2",
        })
    );
}
