//! Traffic of projects and tunnels over time.

use std::collections::BTreeMap;

use store::Period;
use store::traffic::{self, MAX_NAMES, REST, Traffic, TrafficStep};

use crate::database::{Database, both};
use crate::world::{Person, at};

both! {
    traffic_adds_up_in_each_interval,
    names_beyond_the_limit_count_as_the_rest,
    old_intervals_are_removed,
}

/// One visit with a response in this bucket.
fn visit(bucket: usize) -> Traffic {
    let mut visit = Traffic {
        requests: 1,
        errors: 0,
        denied: 0,
        upstream_bytes: 10,
        downstream_bytes: 20,
        durations: Default::default(),
    };
    visit.durations[bucket] = 1;
    visit
}

fn named(names: &[&str]) -> BTreeMap<String, Traffic> {
    let visits = names.iter().map(|name| ((*name).to_owned(), visit(3)));
    visits.collect()
}

async fn traffic_adds_up_in_each_interval(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    for (second, names) in [(0, ["a", REST]), (0, ["a", "b"]), (60, ["b", "b"])] {
        let span = (TrafficStep::Minute, at(second));
        let visits = named(&names);
        traffic::add(&mut tx, ann.project, span, &visits)
            .await
            .unwrap();
    }
    let hour = (TrafficStep::Hour, at(0));
    traffic::add(&mut tx, ann.project, hour, &named(&["a"]))
        .await
        .unwrap();
    let all = (TrafficStep::Minute, Period::default());
    let whole = traffic::series(&mut tx, ann.project, all, "", 10)
        .await
        .unwrap();
    let counts: Vec<_> = whole
        .iter()
        .map(|point| (point.starts_at, point.traffic.requests))
        .collect();
    assert_eq!(counts, [(at(0), 4), (at(60), 1)]);
    assert_eq!(whole[0].traffic.durations[3], 4);
    assert_eq!(whole[0].traffic.durations[4], 0);
    assert_eq!(whole[0].traffic.upstream_bytes, 40);
    assert_eq!(whole[0].traffic.downstream_bytes, 80);
    let a = traffic::series(&mut tx, ann.project, all, "a", 10)
        .await
        .unwrap();
    assert_eq!((a.len(), a[0].traffic.requests), (1, 2));
    let tunnels = traffic::tunnels(&mut tx, ann.project, all, 10)
        .await
        .unwrap();
    let names: Vec<_> = tunnels
        .iter()
        .map(|point| (point.starts_at, point.tunnel.as_str()))
        .collect();
    let wanted = [(at(0), REST), (at(0), "a"), (at(0), "b"), (at(60), "b")];
    assert_eq!(names, wanted);
    let part = Period {
        start: Some(at(1)),
        end: Some(at(60)),
    };
    let none = traffic::series(&mut tx, ann.project, (TrafficStep::Minute, part), "", 10);
    assert!(none.await.unwrap().is_empty());
    let hours = (TrafficStep::Hour, Period::default());
    let hours = traffic::tunnels(&mut tx, ann.project, hours, 10).await;
    assert_eq!(hours.unwrap().len(), 1);
    let others = traffic::tunnels(&mut tx, bob.project, all, 10).await;
    assert!(others.unwrap().is_empty());
}

async fn names_beyond_the_limit_count_as_the_rest(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    let span = (TrafficStep::Minute, at(0));
    for batch in 0..3 {
        let names: Vec<_> = (0..60).map(|number| format!("t{batch}-{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        traffic::add(&mut tx, ann.project, span, &named(&names))
            .await
            .unwrap();
    }
    let all = (TrafficStep::Minute, Period::default());
    let tunnels = traffic::tunnels(&mut tx, ann.project, all, 1000)
        .await
        .unwrap();
    let limit = usize::try_from(MAX_NAMES).unwrap();
    assert_eq!(tunnels.len(), limit + 1);
    let rest = tunnels.iter().find(|point| point.tunnel == REST).unwrap();
    assert_eq!(rest.traffic.requests, 80);
    let whole = traffic::series(&mut tx, ann.project, all, "", 10)
        .await
        .unwrap();
    assert_eq!(whole[0].traffic.requests, 180);
}

async fn old_intervals_are_removed(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    for second in [0, 60, 120] {
        for step in [TrafficStep::Minute, TrafficStep::Hour] {
            let visits = named(&["a"]);
            traffic::add(&mut tx, ann.project, (step, at(second)), &visits)
                .await
                .unwrap();
        }
    }
    // The sum and the tunnel.
    let removed = traffic::purge(&mut tx, TrafficStep::Minute, at(120), 3).await;
    assert_eq!(removed.unwrap(), 3);
    let removed = traffic::purge(&mut tx, TrafficStep::Minute, at(120), 100).await;
    assert_eq!(removed.unwrap(), 1);
    for (step, left) in [(TrafficStep::Minute, 1), (TrafficStep::Hour, 3)] {
        let all = (step, Period::default());
        let points = traffic::series(&mut tx, ann.project, all, "", 10).await;
        assert_eq!(points.unwrap().len(), left);
    }
}
