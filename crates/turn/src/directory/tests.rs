//! Decisions about credentials with data of the platform.

use api::link::{Credential as CredentialUpdate, Membership, Person, Project as ProjectUpdate};
use aws_lc_rs::agreement::{ECDH_P521, PrivateKey};
use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der, PublicKeyX509Der};
use serde_json::Value;
use serde_json::json;

use super::*;

const REALM: &str = "engine.example.com";
const NOW: i64 = 1_800_000_000;
const API: &str = "v1:1800000600:api:e7e8a732:usr_1";
const PAT: &str = "v1:1800000600:pat:e7e8a732:0a1b2c3d";
const APP: &str = "v1:1800000600:app:e7e8a732:crd_app";

fn project(suspended: bool) -> Item {
    let object: ProjectUpdate = serde_json::from_value(json!({
        "id": "prj_1", "endpoint": "e7e8a732", "workspace_id": "wks_1", "plan": "basic",
        "provider": "other", "suspended": suspended,
    }))
    .unwrap();
    Item::Project(Box::new(object))
}

fn person(permissions: &[&str]) -> Item {
    Item::Person(Person {
        id: "usr_1".to_owned(),
        name: String::new(),
        memberships: vec![Membership {
            workspace_id: "wks_1".to_owned(),
            permissions: permissions.iter().map(ToString::to_string).collect(),
            role: None,
        }],
        sessions_after: 0,
    })
}

fn credential(id: &str, proof: &CredentialProof, more: &Value) -> Item {
    let mut object = json!({"id": id, "user_id": "usr_1", "proof": proof});
    object
        .as_object_mut()
        .unwrap()
        .append(&mut more.as_object().unwrap().clone());
    Item::Credential(Box::new(
        serde_json::from_value::<CredentialUpdate>(object).unwrap(),
    ))
}

fn token(more: &Value) -> Item {
    let sha256 = credentials::digest("svc_pat_example");
    let digits = sha256.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let sha256 = digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect();
    let token_endpoint = Some("0a1b2c3d".to_owned());
    credential(
        "crd_pat",
        &CredentialProof::Pat {
            sha256,
            token_endpoint,
        },
        more,
    )
}

/// An application's key and the relay's key.
struct Keys {
    application: PrivateKey,
    relay: PrivateKey,
}

impl Keys {
    fn draw() -> Self {
        let draw = || PrivateKey::generate(&ECDH_P521).unwrap();
        Self {
            application: draw(),
            relay: draw(),
        }
    }

    fn pem(key: &PrivateKey) -> String {
        let der: PublicKeyX509Der<'_> = key.compute_public_key().unwrap().as_der().unwrap();
        let text = STANDARD.encode(der.as_ref());
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    }

    fn der(key: &PrivateKey) -> Vec<u8> {
        let der: EcPrivateKeyRfc5915Der<'_> = key.as_der().unwrap();
        der.as_ref().to_vec()
    }

    fn relay_keys(&self) -> Item {
        Item::RelayKeys(RelayKeys {
            realm: REALM.to_owned(),
            secret: STANDARD.encode(b"0123456789abcdef0123456789abcdef"),
            private_key: STANDARD.encode(Self::der(&self.relay)),
        })
    }

    fn application(&self) -> Item {
        let public_key = Self::pem(&self.application);
        credential("crd_app", &CredentialProof::App { public_key }, &json!({}))
    }
}

fn member() -> Item {
    person(&["turn.relay.allocate"])
}

fn directory_of(items: Vec<Item>) -> Directory {
    let directory = Directory::new(REALM, None);
    directory.replace(items).unwrap();
    directory
}

fn admits(directory: &Directory, username: &str) -> bool {
    let username = Username::parse(username).unwrap();
    directory.admit(&username, NOW).is_ok()
}

fn knows(directory: &Directory, username: &str) -> bool {
    directory
        .password_key(&Username::parse(username).unwrap())
        .is_some()
}

/// TU-5: a token and an application are valid while the platform lists all that they depend on.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn tu_5_derived_credentials_are_valid_while_all_their_conditions_hold() {
    let keys = Keys::draw();
    let whole = || {
        vec![
            keys.relay_keys(),
            project(false),
            member(),
            token(&json!({})),
            keys.application(),
        ]
    };
    let directory = directory_of(whole());
    for username in [API, PAT, APP] {
        assert!(
            admits(&directory, username) && knows(&directory, username),
            "{username}"
        );
    }
    let elsewhere = json!({"resources": {"tunnels": {"projects": ["prj_2"]}}});
    let broken = json!({"resources": {"tunnel": 1}});
    let changes: [(&str, Item, [bool; 3]); 10] = [
        ("suspended", project(true), [false, false, false]),
        (
            "project gone",
            Item::ProjectGone { id: "prj_1".into() },
            [false, false, false],
        ),
        (
            "person gone",
            Item::PersonGone { id: "usr_1".into() },
            [false, false, false],
        ),
        (
            "a weaker role",
            person(&["tunnels.resources.read-only"]),
            [true, false, false],
        ),
        (
            "token revoked",
            Item::CredentialGone {
                id: "crd_pat".into(),
            },
            [true, false, true],
        ),
        (
            "application revoked",
            Item::CredentialGone {
                id: "crd_app".into(),
            },
            [true, true, false],
        ),
        (
            "permission",
            token(&json!({"permissions": ["turn.credentials.create"]})),
            [true, false, true],
        ),
        ("boundary", token(&elsewhere), [true, false, true]),
        (
            "a boundary of a wrong shape",
            token(&broken),
            [true, false, true],
        ),
        (
            "expired",
            token(&json!({"expires_at": NOW})),
            [true, false, true],
        ),
    ];
    for (what, change, expected) in changes {
        let directory = directory_of(whole());
        directory.apply(vec![change]);
        let found = [API, PAT, APP].map(|username| admits(&directory, username));
        assert_eq!(found, expected, "{what}");
    }
    let directory = directory_of(whole());
    assert!(
        !admits(&directory, "v1:1800000600:api:00000000:usr_1"),
        "another project"
    );
    assert!(
        !admits(&directory, "v1:1800000600:api:e7e8a732:usr_2"),
        "another person"
    );
    assert!(
        !knows(&directory, "v1:1800000600:pat:e7e8a732:crd_pat"),
        "an id is no endpoint"
    );
    assert!(
        !knows(&directory, "v1:1800000600:app:e7e8a732:crd_pat"),
        "nor a token an application"
    );
}

#[test]
fn relay_and_application_derive_the_same_password() {
    let keys = Keys::draw();
    let directory = directory_of(vec![keys.relay_keys(), keys.application()]);
    let relay = directory
        .password_key(&Username::parse(APP).unwrap())
        .unwrap();
    let own = RelayPrivateKey::from_der(&Secret::new(Keys::der(&keys.application))).unwrap();
    let public = ApplicationKey::from_pem(&Keys::pem(&keys.relay)).unwrap();
    let application = PasswordKey::app(&own, &public, REALM).unwrap();
    assert_eq!(relay.password(APP), application.password(APP));
    // Another key of the relay results in other passwords.
    directory.apply(vec![Keys::draw().relay_keys()]);
    let relay = directory
        .password_key(&Username::parse(APP).unwrap())
        .unwrap();
    assert_ne!(relay.password(APP), application.password(APP));
}

/// Without a platform, only credentials that it issued are trusted.
#[test]
fn a_directory_without_updates_refuses_unverifiable_credentials() {
    let secret = Secret::new(*b"0123456789abcdef0123456789abcdef");
    let directory = Directory::new(REALM, Some(&secret));
    assert!(knows(&directory, API) && admits(&directory, API));
    for username in [PAT, APP] {
        assert!(!knows(&directory, username) && !admits(&directory, username));
    }
    assert!(
        !knows(&Directory::new(REALM, None), API),
        "nor without a secret"
    );
    directory.replace(vec![project(true), member()]).unwrap();
    assert!(!admits(&directory, API), "known to be suspended");
}

#[test]
fn keys_of_another_realm_are_refused_with_the_reason() {
    let other = Item::RelayKeys(RelayKeys {
        realm: "other.example".to_owned(),
        secret: String::new(),
        private_key: String::new(),
    });
    let refused = Directory::new(REALM, None)
        .replace(vec![other])
        .unwrap_err();
    assert!(refused.contains("other.example") && refused.contains(REALM));
}

#[test]
fn usage_is_taken_once() {
    let keys = Keys::draw();
    let directory = directory_of(vec![keys.relay_keys(), project(false), member()]);
    let account = directory
        .admit(&Username::parse(API).unwrap(), NOW)
        .unwrap();
    account.meter.allocate();
    account.meter.relay(700);
    assert_eq!(directory.take_usage(), [("prj_1".into(), 1, 700)]);
    assert_eq!(directory.take_usage(), []);
}
