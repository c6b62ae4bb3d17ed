//! Reports of the engine's events to the platform, and of what it has counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::link::{EventRecord, InventoryRecord, Record};
use link::{hour_of, report_interval};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::certificate_reports::CertificateReports;
use crate::core::Core;
use crate::domains::OrderReports;
use crate::live::{AllChanges, Online};

/// Interval for reporting everything that is online again, including unchanged entries.
const INVENTORY: Duration = Duration::from_mins(5);
/// Events that may wait to become records, when thousands of agents connect simultaneously.
pub(super) const EVENTS: usize = 65_536;

/// Reports events until `stop`, and then the remaining ones.
pub(super) async fn keep_reporting(
    core: Arc<Core>,
    mut events: AllChanges,
    stop: CancellationToken,
) {
    let Some(reports) = &core.reports else { return };
    let mut inventory = Inventory::default();
    let mut orders = OrderReports::default();
    let mut certificates = CertificateReports::default();
    loop {
        let hour = hour_of(core.clock.now());
        let next = tokio::time::sleep_until(Instant::now() + report_interval(core.clock.now()));
        tokio::pin!(next);
        let stopped = loop {
            tokio::select! {
                Some(event) = events.next() => reports.records.push(event),
                () = &mut next => break false,
                () = stop.cancelled() => break true,
            }
        };
        while let Some(event) = events.try_next() {
            reports.records.push(event);
        }
        for usage in reports.usage.take(hour) {
            reports.records.push(Record::Usage(usage));
        }
        for record in core.tokens.take_uses() {
            reports.records.push(Record::CredentialUse(record));
        }
        // The agents of a replaced process are online at the new one, which reports them.
        if core.handover.is_serving() {
            for record in inventory.changes(core.live.online()) {
                reports.records.push(Record::Inventory(record));
            }
        }
        for record in orders.changes(core.namespace.domains()) {
            reports
                .records
                .push(Record::CertificateOrder(Box::new(record)));
        }
        if let Some(record) = certificates.change(core.certificates.all()) {
            reports
                .records
                .push(Record::EngineCertificates(Box::new(record)));
        }
        if stopped {
            return;
        }
    }
}

/// The last report of each project.
#[derive(Default)]
struct Inventory {
    reported: HashMap<Arc<str>, Online>,
    last_full_report: Option<Instant>,
}

impl Inventory {
    /// The projects that changed; periodically all of them.
    fn changes(&mut self, online: Vec<(Arc<str>, Online)>) -> Vec<InventoryRecord> {
        if self
            .last_full_report
            .is_none_or(|at| at.elapsed() >= INVENTORY)
        {
            self.last_full_report = Some(Instant::now());
            // Projects without anything online have to be reported as well.
            self.reported.values_mut().for_each(|told| *told = STALE);
        }
        let mut before = std::mem::take(&mut self.reported);
        let mut changes = Vec::new();
        for (project, online) in online {
            if before.remove(&project) != Some(online) {
                changes.push(record(&project, online));
            }
            self.reported.insert(project, online);
        }
        let gone = before.into_keys();
        changes.extend(gone.map(|project| record(&project, Online::default())));
        changes
    }
}

/// Differs from all possible counts, so that a project with it is reported again.
const STALE: Online = Online {
    clients: u32::MAX,
    tunnels: u32::MAX,
};

fn record(project: &str, online: Online) -> InventoryRecord {
    InventoryRecord {
        project_id: project.to_owned(),
        clients: online.clients,
        tunnels: online.tunnels,
    }
}

impl AllChanges {
    /// The next change as a record. Changes that belong to no project are skipped.
    async fn next(&mut self) -> Option<Record> {
        while let Some(event) = self.event().await {
            if let Some(record) = reported(&event) {
                return Some(record);
            }
        }
        None
    }

    fn try_next(&mut self) -> Option<Record> {
        std::iter::from_fn(|| self.try_event()).find_map(|event| reported(&event))
    }
}

fn reported(event: &types::event::Event) -> Option<Record> {
    Some(Record::Event(Box::new(EventRecord {
        project_id: event.project_id.clone()?,
        event: serde_json::to_value(event).ok()?,
    })))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use types::client::Client;

    use super::*;
    use crate::clock::ManualClock;
    use crate::directory::Project;
    use crate::live::{LiveLimits, TunnelRegistry};

    #[test]
    fn online_objects_are_reported_when_they_change() {
        let online = |clients| Online {
            clients,
            tunnels: 0,
        };
        let mut inventory = Inventory::default();
        let project: Arc<str> = "prj_1".into();
        let one = || vec![(Arc::clone(&project), online(1))];
        assert_eq!(inventory.changes(one()), [record("prj_1", online(1))]);
        assert_eq!(inventory.changes(one()), []);
        assert_eq!(inventory.changes(vec![]), [record("prj_1", online(0))]);
        assert_eq!(inventory.changes(vec![]), []);
        inventory.changes(one());
        inventory.last_full_report = None;
        assert_eq!(
            inventory.changes(one()).len(),
            1,
            "reported again, although unchanged"
        );
    }

    #[test]
    fn the_event_queue_is_bounded_and_lost_events_are_counted() {
        let clock = Arc::new(ManualClock::at("2026-11-20T17:30:00Z".parse().unwrap()));
        let live: Arc<TunnelRegistry<()>> = TunnelRegistry::new(LiveLimits::default(), clock);
        let mut events = live.subscribe_all(EVENTS);
        let client = Client::online(live.new_client_id());
        let project = Arc::new(Project::community());
        let id = live.add_client(client, &project).unwrap().id;
        for number in 1..65_538 {
            live.update_client(&id, |view| view.os = Some(number.to_string()));
        }
        let lost = events.lost_count();
        assert_eq!(lost.load(Ordering::Relaxed), 2);
        assert_eq!(std::iter::from_fn(|| events.try_event()).count(), 65_536);
    }
}
