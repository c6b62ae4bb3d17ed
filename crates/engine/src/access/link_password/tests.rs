use credentials::{LinkPassword, link_password};
use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::time::Instant;
use types::tunnel::TunnelProperties;

use super::*;
use crate::clock::SystemClock;

const SOURCE: &str = "192.0.2.7";

fn basic(values: &[&str]) -> BasicAuth {
    BasicAuth::from_values(values.iter().map(|value| value.as_bytes()))
}

fn presented(user: &str, password: &str) -> BasicAuth {
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

fn state(checks: &PasswordChecks, policy: &TunnelPolicy, basic: BasicAuth) -> PasswordProof {
    checks.state(policy, basic, source(), None).0
}

fn source() -> IpAddr {
    SOURCE.parse().unwrap()
}

/// The source of all tests at this tunnel.
fn guesser(policy: &TunnelPolicy) -> Guesser {
    (source(), *policy.link_passwords().unwrap().fingerprint())
}

/// Wrong passwords that the source may send to the tunnel now.
fn guesses_left(checks: &PasswordChecks, policy: &TunnelPolicy) -> u32 {
    let guesses = &checks.results.guesses;
    guesses.peek(&guesser(policy), Instant::now()).remaining
}

fn use_all_guesses(checks: &PasswordChecks, policy: &TunnelPolicy) {
    for _ in 0..WRONG_PER_MINUTE.get() {
        let guesses = &checks.results.guesses;
        guesses.take(guesser(policy), Instant::now()).unwrap();
    }
}

async fn verified(
    checks: &PasswordChecks,
    policy: &TunnelPolicy,
    basic: BasicAuth,
) -> PasswordProof {
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
            BasicAuth::Presented(_) => assert!(is_presented, "{values:?}"),
            BasicAuth::Malformed => assert!(!is_presented, "{values:?}"),
            BasicAuth::Absent => panic!("{values:?}"),
        }
    }
    for values in [&[][..], &["Bearer a"], &["Basica b"], &["Digest a"]] {
        assert_eq!(basic(values), BasicAuth::Absent, "{values:?}");
    }
    let long = format!("Basic {}", STANDARD.encode("a:".repeat(400)));
    assert_eq!(basic(&[&long]), BasicAuth::Malformed);
}

#[tokio::test]
async fn a_result_is_kept_for_the_same_password_at_the_same_tunnel() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
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
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let right = || presented("ann", "correct horse");
    let (_, check) = checks.state(&policy("correct horse"), right(), source(), None);
    let verdict = checks.verify(check.unwrap()).await;
    let other = policy("another password");
    let (proof, check) = checks.state(&other, right(), source(), Some(&verdict));
    assert_eq!(proof, PasswordProof::Busy);
    assert!(check.is_none(), "a request is checked once");
}

#[tokio::test]
async fn a_password_for_every_name_has_one_result() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let tunnel = policy("correct horse");
    verified(&checks, &tunnel, presented("ann", "correct horse")).await;
    verified(&checks, &tunnel, presented("ann", "wrong")).await;
    let proof = |password: &str| state(&checks, &tunnel, presented("bob", password));
    assert_eq!(proof("correct horse"), PasswordProof::Valid);
    assert_eq!(
        proof("wrong"),
        PasswordProof::Unchecked,
        "wrong passwords do not show which names have an entry"
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_can_send_a_limited_number_of_wrong_passwords() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let tunnel = policy("correct horse");
    let guess = async |number: u32| {
        let guess = presented("ann", &format!("guess {number}"));
        verified(&checks, &tunnel, guess).await
    };
    for number in 0..WRONG_PER_MINUTE.get() {
        assert_eq!(guess(number).await, PasswordProof::Wrong, "{number}");
    }
    let limited = PasswordProof::Limited { retry_after: 3 };
    assert_eq!(guess(100).await, limited);
    assert_eq!(guess(0).await, PasswordProof::Wrong, "a known result");
    let right = || presented("ann", "correct horse");
    assert_eq!(verified(&checks, &tunnel, right()).await, limited);
    let other = "192.0.2.8".parse().unwrap();
    let (_, check) = checks.state(&tunnel, right(), other, None);
    let verdict = checks.verify(check.unwrap()).await;
    assert_eq!(verdict.proof, PasswordProof::Valid, "another source");
    assert_eq!(
        verified(&checks, &tunnel, right()).await,
        PasswordProof::Valid,
        "a right password that is known is not limited"
    );
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(guess(100).await, PasswordProof::Wrong);
    assert_eq!(guess(101).await, limited);
}

#[tokio::test(start_paused = true)]
async fn wrong_passwords_at_one_tunnel_do_not_limit_another() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let (limited, other) = (policy("correct horse"), policy("another password"));
    use_all_guesses(&checks, &limited);
    assert_eq!(
        verified(&checks, &limited, presented("ann", "correct horse")).await,
        PasswordProof::Limited { retry_after: 3 }
    );
    assert_eq!(
        verified(&checks, &other, presented("ann", "another password")).await,
        PasswordProof::Valid
    );
}

#[tokio::test(start_paused = true)]
async fn right_passwords_do_not_use_up_the_rate() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let tunnel = policy("correct horse");
    let proof = verified(&checks, &tunnel, presented("ann", "correct horse")).await;
    assert_eq!(proof, PasswordProof::Valid);
    assert_eq!(guesses_left(&checks, &tunnel), WRONG_PER_MINUTE.get());
}

/// A browser may cancel a request while its password is checked.
#[tokio::test(start_paused = true)]
async fn the_result_of_an_abandoned_check_is_kept() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let tunnel = policy("correct horse");
    let right = || presented("ann", "correct horse");
    let (_, check) = checks.state(&tunnel, right(), source(), None);
    let verdict = checks.verify(check.unwrap()).now_or_never();
    assert!(verdict.is_none(), "it is dropped while it runs");
    // Its slot becomes free when it has ended.
    let _ended = checks.running.acquire().await.unwrap();
    assert_eq!(state(&checks, &tunnel, right()), PasswordProof::Valid);
    assert_eq!(guesses_left(&checks, &tunnel), WRONG_PER_MINUTE.get());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_checks_until_it_drains() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
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
    // A source without attempts does not wait.
    let other = policy("another password");
    use_all_guesses(&checks, &other);
    assert_eq!(
        verified(&checks, &other, right()).await,
        PasswordProof::Limited { retry_after: 3 }
    );
    drop(queue);
    assert_eq!(
        verified(&checks, &tunnel, right()).await,
        PasswordProof::Valid
    );
}

#[tokio::test]
async fn the_queue_of_one_tunnel_does_not_affect_another() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let (full, other) = (policy("correct horse"), policy("another password"));
    let (_, fingerprint) = guesser(&full);
    let mut slots = Vec::new();
    while let Some(slot) = checks.enter_queue(&fingerprint) {
        slots.push(slot);
    }
    assert_eq!(slots.len(), MAX_WAITING_AT_TUNNEL);
    let right = || presented("ann", "correct horse");
    assert_eq!(verified(&checks, &full, right()).await, PasswordProof::Busy);
    assert_eq!(
        verified(&checks, &other, presented("ann", "another password")).await,
        PasswordProof::Valid
    );
    drop(slots);
    assert_eq!(
        verified(&checks, &full, right()).await,
        PasswordProof::Valid
    );
    let queues = checks.tunnels.lock().len();
    assert_eq!(queues, 1, "queues without checks are removed");
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_its_tunnel_and_for_a_limited_time() {
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
    let (slow, other) = (policy("correct horse"), policy("another password"));
    let (_place, running) = checks.enter_queue(&guesser(&slow).1).unwrap();
    let _check = running.try_acquire().unwrap();
    let before = Instant::now();
    assert_eq!(
        verified(&checks, &slow, presented("ann", "correct horse")).await,
        PasswordProof::Busy,
        "a tunnel has one check at a time"
    );
    assert!(before.elapsed() >= MAX_WAIT);
    assert_eq!(
        verified(&checks, &other, presented("ann", "another password")).await,
        PasswordProof::Valid
    );
}

#[test]
fn a_tunnel_without_its_passwords_refuses_all_visitors() {
    let properties = TunnelProperties {
        basic_auth: Some(true),
        ..TunnelProperties::default()
    };
    let tunnel = TunnelPolicy::compile(&properties);
    let checks = PasswordChecks::new(1, Arc::new(SystemClock));
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
        prop_assert_eq!(BasicAuth::from_values(both.into_iter()), BasicAuth::Malformed);
        let BasicAuth::Presented(found) = presented(&user, &password) else {
            panic!("{user} {password}");
        };
        prop_assert_eq!(&*found.user, user.as_str());
        prop_assert_eq!(found.password.expose(), password.as_bytes());
    }
}
