use credentials::{LinkPassword, link_password};
use proptest::prelude::*;
use types::tunnel::TunnelProperties;

use super::*;

const SOURCE: &str = "192.0.2.7";

fn basic(values: &[&str]) -> Basic {
    Basic::from_values(values.iter().map(|value| value.as_bytes()))
}

fn presented(user: &str, password: &str) -> Basic {
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    basic(&[&format!("Basic {encoded}")])
}

/// A policy with this password for every name.
fn policy(password: &str) -> TunnelPolicy {
    let hash = link_password::hash(&Secret::new(password), &[7; link_password::SALT_BYTES]);
    let entry = LinkPassword::parse("", &hash.unwrap()).unwrap();
    let properties = TunnelProperties {
        basic_auth: Some(true),
        ..TunnelProperties::default()
    };
    let passwords = LinkPasswords::new(vec![entry]).unwrap();
    TunnelPolicy::compile(&properties).with_link_passwords(Some(passwords))
}

fn state(checks: &PasswordChecks, policy: &TunnelPolicy, basic: Basic) -> PasswordProof {
    checks.state(policy, basic, source(), None).0
}

fn source() -> IpAddr {
    SOURCE.parse().unwrap()
}

async fn verified(checks: &PasswordChecks, policy: &TunnelPolicy, basic: Basic) -> PasswordProof {
    let (proof, check) = checks.state(policy, basic.clone(), source(), None);
    let Some(check) = check else {
        return proof;
    };
    assert_eq!(proof, PasswordProof::Unchecked);
    let verdict = checks.verify(check).await;
    checks.state(policy, basic, source(), Some(&verdict)).0
}

#[test]
fn exactly_one_basic_field_has_credentials() {
    // `ann:one`, `ann:`, `:one`, `ann` and bytes that are not UTF-8.
    for (values, is_presented) in [
        (&["Basic YW5uOm9uZQ=="][..], true),
        (&["bASIC   YW5uOm9uZQ== "], true),
        (&["Basic YW5uOg=="], true),
        (&["Basic Om9uZQ=="], true),
        (&["Basic YW5u"], false),
        (&["Basic YW5uOm9uZQ"], false),
        (&["Basic /zpvbmU="], false),
        (&["Basic"], false),
        (&["Basic !"], false),
        (&["Basic YW5uOm9uZQ==", "Basic YW5uOm9uZQ=="], false),
        (&["Basic YW5uOm9uZQ==", "Bearer a"], false),
        (&["Digest a", "Basic YW5uOm9uZQ=="], false),
    ] {
        match basic(values) {
            Basic::Presented(_) => assert!(is_presented, "{values:?}"),
            Basic::Malformed => assert!(!is_presented, "{values:?}"),
            Basic::Absent => panic!("{values:?}"),
        }
    }
    for values in [&[][..], &["Bearer a"], &["Basica b"], &["Digest a"]] {
        assert_eq!(basic(values), Basic::Absent, "{values:?}");
    }
    let long = format!("Basic {}", STANDARD.encode("a:".repeat(400)));
    assert_eq!(basic(&[&long]), Basic::Malformed);
}

#[tokio::test]
async fn a_result_is_kept_for_the_same_password_at_the_same_tunnel() {
    let checks = PasswordChecks::new(1);
    let tunnel = policy("correct horse");
    let right = || presented("ann", "correct horse");
    assert_eq!(
        verified(&checks, &tunnel, right()).await,
        PasswordProof::Valid
    );
    assert_eq!(state(&checks, &tunnel, right()), PasswordProof::Valid);
    let wrong = || presented("ann", "correct horsf");
    assert_eq!(
        verified(&checks, &tunnel, wrong()).await,
        PasswordProof::Wrong
    );
    assert_eq!(state(&checks, &tunnel, wrong()), PasswordProof::Wrong);
    let changed = policy("another password");
    assert_eq!(
        state(&checks, &changed, right()),
        PasswordProof::Unchecked,
        "a changed password has no result"
    );
    // The concatenation of name and password is the same.
    let shifted = presented("anncorrect", " horse");
    assert_eq!(state(&checks, &tunnel, shifted), PasswordProof::Unchecked);
}

#[tokio::test]
async fn a_result_does_not_apply_to_other_passwords() {
    let checks = PasswordChecks::new(1);
    let right = || presented("ann", "correct horse");
    let (_, check) = checks.state(&policy("correct horse"), right(), source(), None);
    let verdict = checks.verify(check.unwrap()).await;
    let other = policy("another password");
    let (proof, check) = checks.state(&other, right(), source(), Some(&verdict));
    assert_eq!(proof, PasswordProof::Busy);
    assert!(check.is_none(), "a request is checked once");
}

#[tokio::test]
async fn a_source_can_send_a_limited_number_of_wrong_passwords() {
    let checks = PasswordChecks::new(1);
    let tunnel = policy("correct horse");
    for number in 0..WRONG_PER_MINUTE.get() {
        let guess = presented("ann", &format!("guess {number}"));
        let proof = verified(&checks, &tunnel, guess).await;
        // The bucket may have been refilled meanwhile, but never emptied early.
        assert_eq!(proof, PasswordProof::Wrong, "{number}");
    }
    // Refills take three seconds each, so a slow machine needs further guesses.
    let mut number = WRONG_PER_MINUTE.get();
    let limited = loop {
        let guess = presented("ann", &format!("guess {number}"));
        match verified(&checks, &tunnel, guess).await {
            PasswordProof::Wrong => number += 1,
            other => break other,
        }
    };
    assert!(
        matches!(limited, PasswordProof::Limited { retry_after: 1..=3 }),
        "{limited:?}"
    );
    // Known results need no check.
    let known = presented("ann", "guess 0");
    assert_eq!(state(&checks, &tunnel, known), PasswordProof::Wrong);
    let other = "192.0.2.8".parse().unwrap();
    let right = presented("ann", "correct horse");
    let (_, check) = checks.state(&tunnel, right, other, None);
    let verdict = checks.verify(check.unwrap()).await;
    assert_eq!(verdict.proof, PasswordProof::Valid, "another source");
}

#[tokio::test]
async fn right_passwords_do_not_use_up_the_rate() {
    let checks = PasswordChecks::new(1);
    for number in 0..=WRONG_PER_MINUTE.get() {
        let password = format!("password {number}");
        let tunnel = policy(&password);
        let proof = verified(&checks, &tunnel, presented("ann", &password)).await;
        assert_eq!(proof, PasswordProof::Valid, "{number}");
    }
}

#[tokio::test]
async fn a_full_queue_refuses_checks_until_it_drains() {
    let checks = PasswordChecks::new(1);
    let tunnel = policy("correct horse");
    let right = || presented("ann", "correct horse");
    let all = u32::try_from(MAX_WAITING).unwrap();
    let queue = Arc::clone(&checks.waiting)
        .try_acquire_many_owned(all)
        .unwrap();
    assert_eq!(
        verified(&checks, &tunnel, right()).await,
        PasswordProof::Busy
    );
    drop(queue);
    assert_eq!(
        verified(&checks, &tunnel, right()).await,
        PasswordProof::Valid
    );
}

#[test]
fn a_tunnel_without_its_passwords_admits_nobody() {
    let properties = TunnelProperties {
        basic_auth: Some(true),
        ..TunnelProperties::default()
    };
    let tunnel = TunnelPolicy::compile(&properties);
    let checks = PasswordChecks::new(1);
    let proof = state(&checks, &tunnel, presented("ann", ""));
    assert_eq!(proof, PasswordProof::Wrong);
}

#[test]
fn debug_output_hides_the_credentials() {
    let basic = presented("ann", "correct horse");
    assert_eq!(format!("{basic:?}"), "Presented(BasicCredentials)");
}

proptest! {
    /// Any header has one of the three results, and credentials are read as they were written.
    #[test]
    fn any_header_is_read(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        user in "[^:]{0,20}",
        password in ".{0,40}",
    ) {
        let both: [&[u8]; 2] = [&bytes, b"Basic"];
        prop_assert_eq!(Basic::from_values(both.into_iter()), Basic::Malformed);
        let Basic::Presented(found) = presented(&user, &password) else {
            panic!("{user} {password}");
        };
        prop_assert_eq!(&*found.user, user.as_str());
        prop_assert_eq!(found.password.expose(), password.as_bytes());
    }
}
