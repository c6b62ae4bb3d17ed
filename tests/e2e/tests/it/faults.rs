//! A platform and its engine as separate processes, while one of them, the network between them or
//! the database fails.

mod away;
mod records;
mod restart;
mod revoked;
mod swap;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Agent, Curl, ManagedPair, Service, eventually};

/// Consecutive visitors, each on a new connection, until they are stopped.
struct Visits {
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    visitors: Vec<JoinHandle<Result<()>>>,
}

impl Visits {
    /// Starts `visitors` in parallel, which present a token and trust one authority.
    fn start(visitors: usize, url: &str, token: &str, ca_file: &Path) -> Self {
        let (count, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let bearer = format!("Authorization: Bearer {token}");
        let visit = || {
            let (curl, url) = (Curl::trusting(ca_file.to_owned()), url.to_owned());
            let (bearer, count, stop) = (bearer.clone(), Arc::clone(&count), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let answer = curl.get(&["-H", &bearer, &url])?;
                    // A failed visit counts as well, because it was made.
                    count.fetch_add(1, Ordering::Relaxed);
                    ensure!(answer.status == 200, "{answer:?}");
                }
                Ok(())
            })
        };
        let visitors = (0..visitors).map(|_| visit()).collect();
        Self {
            count,
            stop,
            visitors,
        }
    }

    /// Waits for this number of further visits.
    fn more(&self, wanted: usize) -> Result<()> {
        let before = self.count.load(Ordering::Relaxed);
        eventually("further visits", || {
            thread::yield_now();
            if self.visitors.iter().any(JoinHandle::is_finished) {
                bail!(
                    "a visitor gave up after {} visits",
                    self.count.load(Ordering::Relaxed)
                );
            }
            Ok(self.count.load(Ordering::Relaxed) >= before + wanted)
        })
    }

    /// Stops them, and returns the number of visits.
    fn stop(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        for visitor in self.visitors {
            visitor.join().ok().context("a visitor panicked")??;
        }
        Ok(self.count.load(Ordering::Relaxed))
    }
}

/// A tunnel at `web` for visitors with a token or a session, and its service.
fn publish(managed: &ManagedPair) -> Result<Agent> {
    let service = Service::mirror()?.to_string();
    managed.forward(
        &service,
        &["--http", "--name", "web", "--token-auth", "--svc-auth"],
    )
}

/// One visitor after the other, with the administrator's token.
fn visits(managed: &ManagedPair, agent: &Agent) -> Visits {
    Visits::start(
        1,
        &agent.url(COUNTED),
        managed.token(),
        managed.engine.ca_file(),
    )
}

/// The status of a visit with a token.
fn visited_with(managed: &ManagedPair, agent: &Agent, token: &str) -> Result<u64> {
    let bearer = format!("Authorization: Bearer {token}");
    let answer = Curl::new(&managed.engine).get(&["-H", &bearer, &agent.url("/asked")])?;
    Ok(answer.status)
}

/// Waits until the platform has received all reports of the engine, and then checks the records of
/// all visits of [`COUNTED`]: none is missing or duplicated.
fn every_record_is_there(managed: &ManagedPair, visits: usize) -> Result<()> {
    let path = format!("/api/projects/tunnels/{}/logs", managed.project());
    let counted = || -> Result<u64> {
        let url = format!("{path}?q={COUNTED}&pageSize=1");
        let list = managed.call("GET", &url, None)?.json();
        list["total"]
            .as_u64()
            .with_context(|| format!("no total: {list}"))
    };
    let expected = u64::try_from(visits)?;
    eventually("all records", || Ok(counted()? >= expected))
        .with_context(|| format!("{:?} of {visits}; {}", counted(), managed.engine.log()))?;
    // A duplicate would have been sent by now.
    eventually("nothing left to report", || {
        Ok(managed.metric("svc_control_plane_reports_waiting")? == 0)
    })?;
    let mut streams = HashSet::new();
    for page in 1..=visits.div_ceil(100) + 1 {
        let url = format!("{path}?q={COUNTED}&pageSize=100&page={page}");
        let list = managed.call("GET", &url, None)?.json();
        let logs = list["logs"]
            .as_array()
            .with_context(|| format!("no logs: {list}"))?;
        streams.extend(
            logs.iter()
                .map(|log| log["payload"]["stream_id"].to_string()),
        );
    }
    assert_eq!((counted()?, streams.len()), (expected, visits));
    Ok(())
}

/// The path of counted visits.
const COUNTED: &str = "/counted";
