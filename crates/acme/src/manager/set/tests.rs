use super::super::tests::{settings, store_certificate};
use super::*;

fn set(state_dir: &Path) -> CertificateSet {
    // 2030-06-01
    let clock: WallClock = Arc::new(|| 1_906_502_400);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    CertificateSet::open(settings(state_dir), Arc::default(), provider, clock).unwrap()
}

fn schedule() -> Schedule {
    Schedule {
        entries: HashMap::new(),
        due: BTreeSet::new(),
        orders: OrderBudget::new(1),
        renewals: OrderBudget::new(2),
        next_number: 0,
    }
}

fn add(schedule: &mut Schedule, name: &str, next: Instant) {
    schedule.insert(name.into(), Certificate::default(), Renewal::DUE, next);
}

#[test]
fn steps_run_in_the_sequence_of_their_times_and_one_at_a_time_for_a_name() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let mut schedule = schedule();
    add(&mut schedule, "b.example", now + second);
    add(&mut schedule, "a.example", now);
    add(&mut schedule, "a.example", now);
    let first = schedule.take(now).ok().unwrap();
    assert_eq!(&*first.name, "a.example");
    assert_eq!(schedule.take(now).err(), Some(Some(now + second)));
    let other = schedule.take(now + second).ok().unwrap();
    assert_eq!(&*other.name, "b.example");
    assert_eq!(schedule.take(now + second).err(), Some(None));
    schedule.finish(first, now + 2 * second);
    assert_eq!(schedule.take(now).err(), Some(Some(now + 2 * second)));
}

#[test]
fn the_step_of_a_removed_name_has_no_successor() {
    let now = Instant::now();
    let mut schedule = schedule();
    add(&mut schedule, "a.example", now);
    let step = schedule.take(now).ok().unwrap();
    assert!(schedule.remove("a.example"));
    assert!(!schedule.remove("a.example"));
    add(&mut schedule, "a.example", now);
    schedule.finish(step, now);
    assert!(schedule.remove("a.example"));
    assert!(schedule.due.is_empty(), "the earlier step added nothing");
}

#[test]
fn renewals_at_a_suggested_time_do_not_wait_for_new_names() {
    let now = Instant::now();
    let mut schedule = schedule();
    assert_eq!(schedule.reserve(false, now).at, now);
    assert!(schedule.reserve(false, now).at > now);
    assert_eq!(schedule.reserve(true, now).at, now);
}

/// Otherwise a project that adds and removes names delays the names of all others.
#[test]
fn names_that_were_removed_keep_no_reservation() {
    let now = Instant::now();
    let mut schedule = schedule();
    schedule.reserve(false, now);
    let waiting = |schedule: &mut Schedule| {
        add(schedule, "a.example", now);
        let mut step = schedule.take(now).ok().unwrap();
        let permit = schedule.reserve(false, now);
        step.progress.permit = Some(permit);
        (step, permit.at)
    };
    let (step, first) = waiting(&mut schedule);
    assert!(first > now);
    schedule.finish(step, first);
    schedule.remove("a.example");
    // During the step.
    let (step, second) = waiting(&mut schedule);
    assert_eq!(second, first);
    schedule.remove("a.example");
    schedule.finish(step, second);
    assert_eq!(schedule.reserve(false, now).at, first);
}

#[test]
fn a_stored_certificate_is_in_use_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let name = "h.example";
    store_certificate(&domain_state_dir(directory.path(), name));
    let set = set(directory.path());
    assert!(set.add(name).current().is_some());
    assert!(set.add("other.example").current().is_none());
    let schedule = set.0.schedule.lock();
    let next = |name: &str| schedule.entries[name].next.unwrap();
    assert!(next("other.example") <= Instant::now());
    assert_eq!(schedule.due.len(), 2);
}

#[test]
fn a_delegated_name_is_validated_by_dns_only() {
    let directory = tempfile::tempdir().unwrap();
    let set = set(directory.path());
    let (name, alias) = ("*.app.example.com", "id.acme.example.net");
    set.add_delegated(name, alias);
    set.add("other.example.com");
    for (name, kind, alias) in [
        (name, ChallengeKind::Dns01, Some(alias)),
        ("other.example.com", ChallengeKind::TlsAlpn01, None),
    ] {
        let known = set.0.schedule.lock().entries[name].alias.clone();
        let step = RunningStep {
            name: name.into(),
            number: 0,
            certificate: Certificate::default(),
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
