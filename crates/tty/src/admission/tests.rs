use proptest::prelude::*;

use super::*;

const NONCE: [u8; NONCE_LEN] = [7; NONCE_LEN];

fn labels() -> BTreeMap<String, String> {
    [(SERVER_ID, "wtty_1"), ("svc.webtty.transport", "plain")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn subject(labels: &BTreeMap<String, String>) -> Subject<'_> {
    Subject {
        project_id: "proj_1",
        server_id: "wtty_1",
        tunnel_protocol: "webtty",
        tunnel_type: "bytestream",
        labels,
    }
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// CP-12: the proof of a server is valid for its tunnel, and the label itself does not change the
/// signed data.
#[test]
fn cp_12_a_proof_is_valid_for_its_tunnel() {
    let key = SigningKey::generate().unwrap();
    let mut labels = labels();
    let proof = sign(&key, "work_1", subject(&labels), NONCE, now()).unwrap();
    labels.insert(LABEL.to_owned(), proof.clone());
    assert_eq!(
        verify(&proof, key.public(), subject(&labels), now()),
        Ok(VerifiedProof {
            nonce: NONCE,
            expires_at: now() + LIFETIME,
        })
    );
    assert!(types::client::check_labels(&labels).is_ok());
}

/// CP-12: a proof cannot be used for another tunnel, another server or another key.
#[test]
fn cp_12_a_proof_is_invalid_for_anything_else() {
    let key = SigningKey::generate().unwrap();
    let labels = labels();
    let is = subject(&labels);
    let proof = sign(&key, "work_1", is, NONCE, now()).unwrap();
    let verify_error = |subject| verify(&proof, key.public(), subject, now());
    let other = |what| Err(AdmissionError::OtherSubject(what));
    assert_eq!(
        verify_error(Subject {
            project_id: "proj_2",
            ..is
        }),
        other("project")
    );
    assert_eq!(
        verify_error(Subject {
            server_id: "wtty_2",
            ..is
        }),
        other("server")
    );
    assert_eq!(
        verify_error(Subject {
            tunnel_protocol: "tcp",
            ..is
        }),
        other("protocol")
    );
    assert_eq!(
        verify_error(Subject {
            tunnel_type: "datagram",
            ..is
        }),
        other("type")
    );
    let mut more = labels.clone();
    more.insert("a".to_owned(), "b".to_owned());
    assert_eq!(verify_error(subject(&more)), other("labels"));
    let stranger = SigningKey::generate().unwrap();
    assert_eq!(
        verify(&proof, stranger.public(), is, now()),
        Err(AdmissionError::OtherKey)
    );
    // Another key with the id of the right one.
    let changed = with(&proof, |proof| {
        proof.signing_key_id = stranger.public().id();
    });
    assert_eq!(
        verify(&changed, stranger.public(), is, now()),
        Err(AdmissionError::Forged)
    );
}

/// CP-12: a proof is valid from 30 seconds before it was made until 90 seconds after. A proof with
/// a longer validity is rejected.
#[test]
fn cp_12_a_proof_has_a_limited_validity() {
    let key = SigningKey::generate().unwrap();
    let labels = labels();
    let is = subject(&labels);
    let proof = sign(&key, "work_1", is, NONCE, now()).unwrap();
    let at = |seconds: i64| {
        let at = now() + SignedDuration::from_secs(seconds);
        verify(&proof, key.public(), is, at).map(|_| ())
    };
    assert_eq!(at(-31), Err(AdmissionError::NotYet));
    assert_eq!(at(-30), Ok(()));
    assert_eq!(at(89), Ok(()));
    assert_eq!(at(90), Err(AdmissionError::Expired));
    for (issued_at, expires_at) in [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:05:36Z"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:04Z"),
    ] {
        let changed = resigned(&key, &proof, |proof| {
            proof.issued_at = issued_at.to_owned();
            proof.expires_at = expires_at.to_owned();
        });
        assert_eq!(
            verify(&changed, key.public(), is, now()),
            Err(AdmissionError::Lifetime)
        );
    }
}

#[test]
fn malformed_proofs_are_rejected() {
    let key = SigningKey::generate().unwrap();
    let labels = labels();
    let is = subject(&labels);
    let proof = sign(&key, "work_1", is, NONCE, now()).unwrap();
    let verify_error = |proof: &str| verify(proof, key.public(), is, now()).unwrap_err();
    assert_eq!(verify_error(""), AdmissionError::Malformed);
    assert_eq!(verify_error("e30"), AdmissionError::Malformed);
    assert_eq!(
        verify_error(&format!("{proof}=")),
        AdmissionError::Malformed
    );
    assert_eq!(
        verify_error(&"A".repeat(MAX_PROOF + 1)),
        AdmissionError::Malformed
    );
    let changed = with(&proof, |proof| proof.version = 2);
    assert_eq!(verify_error(&changed), AdmissionError::Version);
    let changed = resigned(&key, &proof, |proof| proof.nonce = "AAAA".to_owned());
    assert_eq!(verify_error(&changed), AdmissionError::Malformed);
    let changed = resigned(&key, &proof, |proof| proof.issued_at = "now".to_owned());
    assert_eq!(verify_error(&changed), AdmissionError::Malformed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// CP-12: a changed proof is invalid.
    #[test]
    fn cp_12_a_changed_proof_is_invalid(at in any::<prop::sample::Index>(), to in "[ -~]") {
        let key = SigningKey::generate().unwrap();
        let labels = labels();
        let is = subject(&labels);
        let proof = sign(&key, "work_1", is, NONCE, now()).unwrap();
        let mut json = URL_SAFE_NO_PAD.decode(&proof).unwrap();
        let at = at.index(json.len());
        let before = std::mem::replace(&mut json[at], to.as_bytes()[0]);
        let changed = verify(&URL_SAFE_NO_PAD.encode(json), key.public(), is, now());
        prop_assert_eq!(changed.is_ok(), before == to.as_bytes()[0]);
    }

    /// CP-12: different labels need different proofs.
    #[test]
    fn cp_12_different_labels_have_different_signatures(
        one in prop::collection::btree_map("[ab]{1,2}", "[ab]{0,2}", 0..3),
        other in prop::collection::btree_map("[ab]{1,2}", "[ab]{0,2}", 0..3),
    ) {
        let same = subject(&one).labels_sha256() == subject(&other).labels_sha256();
        prop_assert_eq!(same, one == other);
    }
}

fn with(proof: &str, change: impl FnOnce(&mut Proof)) -> String {
    let mut proof = Proof::read(proof).unwrap();
    change(&mut proof);
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&proof).unwrap())
}

fn resigned(key: &SigningKey, proof: &str, change: impl FnOnce(&mut Proof)) -> String {
    with(proof, |proof| {
        change(proof);
        proof.signature = URL_SAFE_NO_PAD.encode(key.sign(&proof.signed()).unwrap());
    })
}
