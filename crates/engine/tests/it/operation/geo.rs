//! Countries of visitors, looked up in a file (ED-8).

use std::path::Path;

use api::control::settings::ProjectSettings;
use client::Properties;
use serde_json::{Value, json};
use testing::{Upstream, within};

use crate::world::World;

/// Documentation ranges in Paris (FR), San Francisco (US) and New Zealand (NZ).
const PLACES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../control/tests/fixtures/places.mmdb"
);
const FRANCE: &str = "192.0.2.9";
const AMERICA: &str = "198.51.100.9";
const ZEALAND: &str = "203.0.113.9";
const NOWHERE: &str = "192.0.0.9";
const PRIVATE: &str = "10.0.0.9";

fn config(file: &Path) -> String {
    format!("geoip: {{file: '{}'}}\n", file.display())
}

fn settings(geo: &Value) -> ProjectSettings {
    serde_json::from_value(json!({"geoIp": geo})).unwrap()
}

impl World {
    async fn comes_from(&self, address: &str, host: &str) -> u16 {
        let mut visitor = self.visitor_from(address, host).await;
        let answer = visitor.get("/", host).await;
        if answer.status == 403 {
            assert_eq!(answer.json()["code"], "country_not_allowed");
        }
        answer.status
    }
}

/// ED-8: both kinds of list apply immediately, before the service receives the request. Both refuse
/// an address without a known country.
#[tokio::test]
async fn ed_8_countries_of_a_project_and_of_a_tunnel() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let sections = config(Path::new(PLACES)) + &format!("access_log: {{path: {log:?}}}\n");
    let world = World::with(&sections).await;
    let service = Upstream::http1().await;
    let open = world.publish(Properties::http(), &service).await;
    let french = Properties::http().geo_ip(vec!["FR".to_owned(), "NZ".to_owned()]);
    let french = world.publish(french, &service).await;
    let all = [FRANCE, AMERICA, ZEALAND, NOWHERE, PRIVATE];
    for (geo, of_open, of_french) in [
        (None, [200, 200, 200, 200, 200], [200, 403, 200, 403, 403]),
        (
            Some(json!({"allow": ["FR", "US"]})),
            [200, 200, 403, 403, 403],
            [200, 403, 403, 403, 403],
        ),
        (
            Some(json!({"deny": ["FR"]})),
            [403, 200, 200, 403, 403],
            [403, 403, 200, 403, 403],
        ),
    ] {
        if let Some(geo) = &geo {
            world
                .change(|project| project.settings = settings(geo))
                .await;
        }
        for (place, address) in all.iter().enumerate() {
            let status = world.comes_from(address, open.hostname()).await;
            assert_eq!(status, of_open[place], "{geo:?} {address}");
            let status = world.comes_from(address, french.hostname()).await;
            assert_eq!(status, of_french[place], "{geo:?} {address}");
        }
    }
    // A header does not change the address.
    let mut visitor = world.visitor_from(FRANCE, open.hostname()).await;
    let forwarded = "X-Forwarded-For: 198.51.100.9\r\n";
    visitor
        .request("GET", "/", open.hostname(), forwarded)
        .await;
    assert_eq!(visitor.answer().await.status, 403);
    world.engine.stop().await;
    let records = std::fs::read_to_string(log).unwrap();
    let records = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let records: Vec<Value> = records.collect();
    let of = |address: &str, rule: &str| {
        let is_it = |record: &&Value| record["source_ip"] == address && record["rule"] == rule;
        let found = records.iter().rfind(is_it).cloned();
        found.unwrap_or_else(|| panic!("no record of {address} by {rule}"))
    };
    let refused = of(AMERICA, "geo_ip");
    assert_eq!(refused["country"], "US");
    assert_eq!(refused["reason"], "the country is not allowed");
    assert_eq!(of(ZEALAND, "public")["country"], "NZ");
    let unknown = of(NOWHERE, "geo_ip");
    assert_eq!(unknown["reason"], "the country of the address is not known");
    assert!(unknown.get("country").is_none());
    // No rule needs the country of the first visitor. Later there is a list.
    let is_served = |record: &&Value| {
        record["host"] == open.hostname()
            && record["source_ip"] == FRANCE
            && record["status"] == 200
    };
    let served = records.iter().filter(is_served);
    let mut countries: Vec<_> = served
        .map(|record| record.get("country").and_then(Value::as_str))
        .collect();
    countries.sort_unstable();
    assert_eq!(countries, [None, Some("FR")]);
}

/// ED-8: active visits are checked against a country list as well, also if the list was added
/// later.
#[tokio::test]
async fn ed_8_visits_from_a_country_that_is_barred_later_are_closed() {
    let world = World::with(&config(Path::new(PLACES))).await;
    let source = testing::EventSource::start().await;
    let tunnel = world.publish(Properties::http(), &source.upstream).await;
    let host = tunnel.hostname();
    let mut visitors = [
        world.visitor_from(FRANCE, host).await,
        world.visitor_from(AMERICA, host).await,
    ];
    for visitor in &mut visitors {
        visitor.request("GET", "/", host, "").await;
        assert_eq!(visitor.head().await.status, 200);
    }
    world
        .change(|project| project.settings = settings(&json!({"deny": ["US"]})))
        .await;
    let [french, american] = &mut visitors;
    assert_eq!(american.chunk().await, None);
    let event = source.send("still here");
    assert_eq!(french.chunk().await.unwrap(), event.as_bytes());
}

/// A copy of the file in which the French range belongs to another country.
fn with_changed_country(file: &Path, to: [u8; 2]) {
    let mut bytes = std::fs::read(PLACES).unwrap();
    let place = bytes.windows(3).position(|bytes| bytes == b"BFR").unwrap();
    bytes[place + 1..place + 3].copy_from_slice(&to);
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, bytes).unwrap();
    std::fs::rename(fresh, file).unwrap();
}

/// ED-8: a new file is used without a restart. A broken file leaves the old one in use.
#[tokio::test]
async fn ed_8_the_file_of_countries_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("places.mmdb");
    std::fs::copy(PLACES, &file).unwrap();
    let world = World::with(&config(&file)).await;
    let service = Upstream::http1().await;
    let in_belgium = Properties::http().geo_ip(vec!["BE".to_owned()]);
    let tunnel = world.publish(in_belgium, &service).await;
    let host = tunnel.hostname();
    assert_eq!(world.comes_from(FRANCE, host).await, 403);
    with_changed_country(&file, *b"BE");
    let taken = async { while world.comes_from(FRANCE, host).await != 200 {} };
    within("the new file", taken).await;
    std::fs::write(&file, "garbage").unwrap();
    assert_eq!(world.comes_from(FRANCE, host).await, 200);
    with_changed_country(&file, *b"AT");
    let taken = async { while world.comes_from(FRANCE, host).await != 403 {} };
    within("the next file", taken).await;
}
