use super::super::tests::{settings, store_certificate};
use super::names::EntryState;
use super::*;

fn set(state_dir: &Path) -> CertificateSet {
    // 2030-06-01
    let clock: WallClock = Arc::new(|| 1_906_502_400);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    CertificateSet::open(settings(state_dir), Arc::default(), provider, clock).unwrap()
}

fn request(owner: &str, alias: Option<&str>) -> NameRequest {
    NameRequest {
        owner: Some(owner.into()),
        alias: alias.map(Into::into),
    }
}

fn add(schedule: &mut Schedule, name: &str, next: Instant) {
    let expiry = DomainExpiry::new(name.into());
    let certificate = Certificate::default();
    schedule.insert(expiry, request("a", None), certificate, Renewal::DUE, next);
}

fn take(schedule: &mut Schedule, now: Instant) -> RunningStep {
    schedule.take(now).ok().unwrap()
}

/// Ends the step that is due after a failure, with a delay.
fn fail(schedule: &mut Schedule, now: Instant, delay: Duration) {
    let mut step = take(schedule, now);
    step.progress.failures += 1;
    schedule.finish(step, NextStep::After(delay), now);
}

const NEW: NextStep = NextStep::Order { is_renewal: false };
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

#[test]
fn steps_run_in_the_sequence_of_their_times_and_one_at_a_time_for_a_name() {
    let now = Instant::now();
    let mut schedule = Schedule::new();
    add(&mut schedule, "b.example", now + SECOND);
    add(&mut schedule, "a.example", now);
    add(&mut schedule, "a.example", now);
    let first = take(&mut schedule, now);
    assert_eq!(&*first.name, "a.example");
    assert_eq!(schedule.take(now).err(), Some(Some(now + SECOND)));
    let other = take(&mut schedule, now + SECOND);
    assert_eq!(&*other.name, "b.example");
    assert_eq!(schedule.take(now + SECOND).err(), Some(None));
    schedule.finish(first, NextStep::After(2 * SECOND), now);
    assert_eq!(schedule.take(now).err(), Some(Some(now + 2 * SECOND)));
}

#[test]
fn the_step_of_a_removed_name_has_no_successor() {
    let now = Instant::now();
    let mut schedule = Schedule::new();
    add(&mut schedule, "a.example", now);
    let step = take(&mut schedule, now);
    schedule.remove("a.example", now);
    schedule.remove("a.example", now);
    add(&mut schedule, "a.example", now);
    schedule.finish(step, NextStep::After(SECOND), now);
    schedule.remove("a.example", now);
    assert!(schedule.due.is_empty(), "the earlier step added nothing");
}

/// Otherwise the metric has a domain for ever that no longer exists, or the expiry of an ordered
/// certificate after its project has uploaded one.
#[test]
fn the_end_of_a_running_order_exports_no_expiry_of_a_removed_name() {
    let now = Instant::now();
    let mut schedule = Schedule::new();
    add(&mut schedule, "a.example", now);
    let step = take(&mut schedule, now);
    assert!(step.expiry.export(1));
    schedule.remove("a.example", now);
    add(&mut schedule, "a.example", now);
    assert!(!step.expiry.export(2));
    assert!(take(&mut schedule, now).expiry.export(3));
}

#[test]
fn orders_wait_for_the_turn_of_their_project() {
    let now = Instant::now();
    let mut schedule = Schedule::new();
    for number in 0..ORDERS_PER_OWNER + 2 {
        add(&mut schedule, &format!("{number:02}.example"), now);
        let step = take(&mut schedule, now);
        assert!(!step.progress.has_permit);
        schedule.finish(step, NEW, now);
    }
    for number in 0..ORDERS_PER_OWNER {
        let step = take(&mut schedule, now);
        assert!(step.progress.has_permit);
        assert_eq!(*step.name, format!("{number:02}.example"));
    }
    assert_eq!(schedule.take(now).err(), Some(Some(now + HOUR)));
    // A name that is removed while it waits has no turn.
    schedule.remove(&format!("{ORDERS_PER_OWNER}.example"), now);
    let step = take(&mut schedule, now + HOUR);
    assert_eq!(*step.name, format!("{}.example", ORDERS_PER_OWNER + 1));
    assert_eq!(schedule.take(now + HOUR).err(), Some(None));
}

#[test]
fn renewals_at_a_suggested_time_do_not_wait_for_new_names() {
    let now = Instant::now();
    let mut schedule = Schedule::new();
    let mut wait = |name: &str, next: NextStep| {
        add(&mut schedule, name, now);
        let step = take(&mut schedule, now);
        schedule.finish(step, next, now);
        schedule.take(now).is_ok()
    };
    for number in 0..ORDERS_PER_OWNER {
        assert!(wait(&format!("{number}.example"), NEW));
    }
    assert!(!wait("new.example", NEW));
    assert!(wait("old.example", NextStep::Order { is_renewal: true }));
}

/// A project cannot spend the failed validations of an account by adding a name again and again.
#[test]
fn a_name_that_failed_waits_also_after_it_was_added_again() {
    let start = Instant::now();
    let mut schedule = Schedule::new();
    add(&mut schedule, "a.example", start);
    fail(&mut schedule, start, 300 * SECOND);
    schedule.remove("a.example", start + SECOND);
    add(&mut schedule, "a.example", start + SECOND);
    let next = start + 300 * SECOND;
    assert_eq!(schedule.take(start + SECOND).err(), Some(Some(next)));
    assert_eq!(take(&mut schedule, next).progress.failures, 1);
    // The step that ran is removed during its time, with a longer delay.
    schedule.remove("a.example", next);
    add(&mut schedule, "b.example", next);
    let mut step = take(&mut schedule, next);
    step.progress.failures = 7;
    schedule.remove("b.example", next);
    schedule.finish(step, NextStep::After(6 * HOUR), next);
    add(&mut schedule, "b.example", next);
    assert_eq!(schedule.take(next).err(), Some(Some(next + HOUR)));
}

#[test]
fn a_changed_request_brings_the_next_attempt_forward() {
    let now = Instant::now();
    let mut schedule = Schedule::new();
    add(&mut schedule, "a.example", now);
    fail(&mut schedule, now, HOUR);
    assert!(schedule.take(now).is_err());
    let same = request("a", None);
    assert!(schedule.change("a.example", &same, now).is_some());
    assert!(schedule.take(now).is_err(), "nothing has changed");
    let other = request("a", Some("id.acme.example.net"));
    assert!(schedule.change("a.example", &other, now).is_some());
    let step = take(&mut schedule, now);
    assert_eq!(step.alias.as_deref(), Some("id.acme.example.net"));
    assert_eq!(schedule.due.len(), 0);

    // During a step.
    schedule.change("a.example", &request("b", None), now);
    schedule.finish(step, NextStep::After(HOUR), now);
    assert!(schedule.take(now).is_err());
    let step = take(&mut schedule, now + SECOND);
    assert_eq!(step.alias, None);

    // While it waits for its turn.
    schedule.finish(step, NEW, now);
    schedule.change("a.example", &request("c", None), now);
    let step = take(&mut schedule, now);
    assert!(!step.progress.has_permit);
    assert_eq!(schedule.take(now).err(), Some(None), "it left the turns");
}

#[test]
fn a_stored_certificate_is_used_immediately() {
    let directory = tempfile::tempdir().unwrap();
    let name = "h.example";
    store_certificate(&domain_state_dir(directory.path(), name));
    let set = set(directory.path());
    assert!(set.add(name).current().is_some());
    assert!(set.add("other.example").current().is_none());
    let schedule = set.0.schedule.lock();
    let state = schedule.entries["other.example"].state;
    assert!(matches!(state, EntryState::Due(at) if at <= Instant::now()));
    assert_eq!(schedule.due.len(), 2);
}

#[test]
fn a_delegated_name_is_validated_by_dns_only() {
    let directory = tempfile::tempdir().unwrap();
    let set = set(directory.path());
    let (name, alias) = ("*.app.example.com", "id.acme.example.net");
    set.add_for(&"prj_a".into(), name, Some(alias));
    set.add("other.example.com");
    for (name, kind, alias) in [
        (name, ChallengeKind::Dns01, Some(alias)),
        ("other.example.com", ChallengeKind::TlsAlpn01, None),
    ] {
        let known = set.0.schedule.lock().entries[name].request.alias.clone();
        let step = RunningStep {
            name: name.into(),
            number: 0,
            certificate: Certificate::default(),
            expiry: DomainExpiry::new(name.into()),
            alias: known,
            progress: Progress::new(Renewal::DUE),
        };
        let manager = set.0.manager(&step, &set.0.clients[0]);
        assert_eq!(manager.settings.challenges, [kind], "{name}");
        assert_eq!(manager.settings.challenge_alias.as_deref(), alias);
    }
}

#[test]
fn the_state_of_each_domain_has_its_own_directory() {
    let directory = |name| domain_state_dir(Path::new("/state"), name);
    assert_eq!(
        directory("app.example.com"),
        Path::new("/state/domains/app.example.com")
    );
    assert_eq!(
        directory("*.app.example.com"),
        Path::new("/state/domains/_.app.example.com")
    );
}
