use api::link::{Credential, CredentialProof, EndedToken, Keys, Membership, Person};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const ADDRESS: &str = "https://platform.example/";

fn platform() -> Platform {
    Platform {
        base_url: "https://platform.example".to_owned(),
        cluster_domain: "engine.example".to_owned(),
    }
}

fn cursor(version: u32) -> Cursor {
    Cursor(format!("{version}.a1"))
}

fn person(id: &str, workspace: &str) -> Item {
    Item::Person(Person {
        id: id.to_owned(),
        name: String::new(),
        memberships: vec![Membership {
            workspace_id: workspace.to_owned(),
            permissions: vec![],
            role: None,
        }],
        sessions_after: 0,
    })
}

fn credential(id: &str, byte: u8) -> Item {
    Item::Credential(Box::new(Credential {
        id: id.to_owned(),
        user_id: "usr_1".to_owned(),
        root: None,
        workspace_id: None,
        proof: CredentialProof::Pat {
            sha256: format!("{byte:02x}").repeat(32),
            token_endpoint: None,
        },
        permissions: None,
        resources: Some(json!({"tunnels": {}})),
        expires_at: None,
    }))
}

fn project(id: &str, endpoint: &str) -> Item {
    serde_json::from_value(json!({"item": "project", "id": id, "endpoint": endpoint,
        "workspace_id": "wks_1", "plan": "basic", "provider": "other"}))
    .unwrap()
}

fn ended(id: &str, until: i64) -> Item {
    Item::Ended(EndedToken {
        id: id.to_owned(),
        until,
    })
}

fn sample() -> State {
    let items = [
        Item::Keys(Keys {
            jwks: json!({"keys": []}),
        }),
        project("prj_1", "e7e8a732"),
        person("usr_1", "wks_1"),
        credential("crd_1", 7),
        ended("ses_1", 100),
    ];
    State::new(platform(), &items, cursor(5))
}

/// CP-12: an engine that starts without its platform still has the keys of registered servers, but
/// not those of deleted ones.
#[test]
fn cp_12_registered_servers_are_kept_until_they_are_deleted() {
    let server = |id: &str, status: &str| -> Item {
        serde_json::from_value(
            json!({"item": "webtty_server", "id": id, "project_id": "prj_1",
            "name": id, "status": status, "recording_policy": "recorded",
            "encryption_policy": "disabled", "access_policy": "project_members",
            "keys": {"encryption": "a", "signing": "b"}}),
        )
        .unwrap()
    };
    let mut state = sample();
    let others = state.items().len();
    state.apply(
        &[server("wsv_1", "active"), server("wsv_2", "active")],
        cursor(6),
    );
    state.apply(&[server("wsv_1", "suspended")], cursor(7));
    let gone = Item::WebttyServerGone {
        id: "wsv_2".to_owned(),
    };
    state.apply(&[gone], cursor(8));
    let kept = State::from_file(&state.to_file(ADDRESS), ADDRESS).unwrap();
    let items = kept.items();
    assert_eq!(items.len(), others + 1);
    assert!(items.contains(&server("wsv_1", "suspended")));
}

/// Otherwise the key of a certificate that was removed would stay on disk.
#[test]
fn certificates_of_domains_end_with_their_place_in_the_project() {
    let project = |id: &str, domains: &[(&str, bool)]| -> Item {
        let domains: Vec<_> = domains
            .iter()
            .map(|(id, has_certificate)| {
                json!({"id": id, "hostname": format!("{id}.example.com"),
                    "certificate_validation": "tls_alpn_01", "has_certificate": has_certificate})
            })
            .collect();
        serde_json::from_value(json!({"item": "project", "id": id, "endpoint": "e7e8a732",
            "workspace_id": "wks_1", "plan": "basic", "provider": "other", "domains": domains}))
        .unwrap()
    };
    let certificate = |project: &str, id: &str| -> Item {
        serde_json::from_value(json!({"item": "domain_certificate", "id": id,
            "project_id": project, "hostname": format!("{id}.example.com"), "chain": "c",
            "private_key": "k"}))
        .unwrap()
    };
    let both = [("dom_1", true), ("dom_2", true)];
    let mut state = sample();
    let items = [
        project("prj_2", &both),
        certificate("prj_2", "dom_1"),
        certificate("prj_2", "dom_2"),
        project("prj_3", &[("dom_3", true)]),
        certificate("prj_3", "dom_3"),
    ];
    state.apply(&items, cursor(6));
    let kept = |state: &State| {
        let kept = State::from_file(&state.to_file(ADDRESS), ADDRESS).unwrap();
        assert_eq!(kept, *state);
        let items = kept.items().into_iter();
        let ids = items.filter_map(|item| match item {
            Item::DomainCertificate(certificate) => Some(certificate.id),
            _ => None,
        });
        ids.collect::<Vec<_>>()
    };
    assert_eq!(kept(&state), ["dom_1", "dom_2", "dom_3"]);
    let change = project("prj_2", &[("dom_1", false), ("dom_2", true)]);
    state.apply(&[change], cursor(7));
    assert_eq!(kept(&state), ["dom_2", "dom_3"]);
    let gone = Item::ProjectGone {
        id: "prj_2".to_owned(),
    };
    state.apply(&[gone], cursor(8));
    assert_eq!(kept(&state), ["dom_3"]);
}

#[test]
fn items_replace_earlier_ones_and_removals_delete_them() {
    let mut state = sample();
    state.apply(
        &[
            person("usr_1", "wks_2"),
            Item::CredentialGone {
                id: "crd_1".to_owned(),
            },
            Item::Unknown,
        ],
        cursor(6),
    );
    let items = state.items();
    assert_eq!(items.len(), 4);
    assert!(items.contains(&person("usr_1", "wks_2")));
    assert_eq!(state.cursor(), Some(&cursor(6)));
    let same = State::new(platform(), &items, cursor(6));
    assert_eq!(state, same, "nothing is left of what was replaced");
}

#[test]
fn revocations_are_deleted_after_their_expiry() {
    let mut state = sample();
    state.remove_expired(99);
    assert_eq!(state.items().len(), 5);
    state.remove_expired(100);
    assert_eq!(state.items().len(), 4);
}

#[test]
fn a_file_contains_the_whole_state() {
    let state = sample();
    let file = state.to_file(ADDRESS);
    assert_eq!(State::from_file(&file, ADDRESS).unwrap(), state);
}

#[test]
fn a_broken_or_foreign_file_is_refused() {
    let file = sample().to_file(ADDRESS);
    assert!(matches!(
        State::from_file(&file, "https://other.example/"),
        Err(StateFileError::Foreign)
    ));
    for broken in [
        &b""[..],
        b"\n",
        b"{}\n",
        &file[..file.len() - 1],
        &file[..file.len() / 2],
        &[file.as_slice(), b"{}\n"].concat(),
    ] {
        assert!(matches!(
            State::from_file(broken, ADDRESS),
            Err(StateFileError::Corrupt(_))
        ));
    }
    for at in (0..file.len()).step_by(7) {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(State::from_file(&changed, ADDRESS).is_err(), "byte {at}");
    }
}

/// A file with this first line, and otherwise valid.
fn with_header(change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    let file = sample().to_file(ADDRESS);
    let text = String::from_utf8(file).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let mut header = serde_json::from_str(&lines[0]).unwrap();
    change(&mut header);
    lines[0] = header.to_string();
    lines.pop();
    let mut file = (lines.join("\n") + "\n").into_bytes();
    let trailer = json!({"items": lines.len() - 1, "sha256": sha256(&file)});
    file.extend(format!("{trailer}\n").into_bytes());
    file
}

#[test]
fn a_file_of_another_program_version_is_used_without_its_cursor() {
    let file = with_header(|header| header["program"] = json!("0.0.9"));
    let state = State::from_file(&file, ADDRESS).unwrap();
    assert_eq!(state.items().len(), 5);
    assert_eq!(
        state.cursor(),
        None,
        "it may not know what this version has to know"
    );
    let file = with_header(|header| header["version"] = json!(2));
    assert!(matches!(
        State::from_file(&file, ADDRESS),
        Err(StateFileError::Version)
    ));
}

proptest! {
    /// In whatever way the items arrive, the state has the last item of each id.
    #[test]
    fn changes_and_snapshots_result_in_the_same_state(
        steps in proptest::collection::vec((0_u8..4, 0_u8..4, any::<bool>()), 0..60),
        cut in 0_usize..60,
    ) {
        let items: Vec<Item> = steps
            .iter()
            .map(|(id, byte, gone)| {
                let id = format!("crd_{id}");
                if *gone { Item::CredentialGone { id } } else { credential(&id, *byte) }
            })
            .collect();
        let (first, rest) = items.split_at(cut.min(items.len()));
        let mut folded = State::new(platform(), first, cursor(1));
        for item in rest {
            folded.apply(std::slice::from_ref(item), cursor(1));
        }
        let at_once = State::new(platform(), &items, cursor(1));
        prop_assert_eq!(&folded, &at_once);
        let file = folded.to_file(ADDRESS);
        prop_assert_eq!(State::from_file(&file, ADDRESS).unwrap(), folded);
    }
}

/// Only an item with a new key adds without revoking: every other change has to be on disk before a
/// restart may serve from there.
#[test]
fn revocations_are_distinguished_from_additions() {
    let ended = || {
        Item::Ended(EndedToken {
            id: "jti".to_owned(),
            until: 100,
        })
    };
    let gone = |id: &str| Item::CredentialGone { id: id.to_owned() };
    for (items, restricts) in [
        (vec![credential("crd_2", 2)], false),
        (vec![person("usr_2", "wks_1"), Item::Unknown], false),
        (vec![gone("crd_3")], false),
        (vec![gone("crd_1")], true),
        (vec![credential("crd_1", 2)], true),
        (vec![person("usr_1", "wks_2")], true),
        (vec![ended()], true),
        (vec![credential("crd_2", 2), gone("crd_2")], true),
    ] {
        let first = [credential("crd_1", 1), person("usr_1", "wks_1")];
        let before = State::new(platform(), &first, cursor(1));
        let mut after = before.clone();
        assert_eq!(after.apply(&items, cursor(2)), restricts, "{items:?}");
        // The same for a snapshot, which does not state the changes in between.
        let by_snapshot = State::new(platform(), &after.items(), cursor(2));
        let back_and_forth = items.len() == 2 && restricts;
        assert_eq!(
            by_snapshot.restricts(&before),
            restricts && !back_and_forth,
            "{items:?}"
        );
    }
}
