//! The engine is killed.

use std::collections::BTreeSet;

use anyhow::Result;
use e2e::{Agent, ManagedPair, Service, eventually};

use super::{publish, visited_with};

/// EN-9: all tunnels return under their names.
#[test]
fn two_hundred_tunnels_return_under_their_names() -> Result<()> {
    let mut managed = ManagedPair::on_sqlite()?;
    let service = Service::mirror()?.to_string();
    let mut agents = managed.forward_many(TUNNELS, &service, &["--http"])?;
    let names = |agents: &[Agent]| -> Result<BTreeSet<String>> {
        agents
            .iter()
            .map(|agent| Ok(agent.hostname()?.to_owned()))
            .collect()
    };
    let before = names(&agents)?;
    assert_eq!(before.len(), TUNNELS);

    managed.engine.process().kill();
    managed.engine.start_again()?;
    for agent in &mut agents {
        let name = agent.hostname()?.to_owned();
        agent.online_again()?;
        assert_eq!(agent.hostname()?, name);
    }
    let visited = visited_with(&managed, &agents[TUNNELS / 2], managed.token())?;
    assert_eq!(visited, 200);
    Ok(())
}

#[test]
fn an_engine_that_starts_without_its_platform_serves_its_stored_state() -> Result<()> {
    let mut managed = ManagedPair::on_sqlite()?;
    let mut agent = publish(&managed)?;
    eventually("what is known on disk", || managed.is_stored())?;

    managed.control.process().kill();
    managed.engine.process().kill();
    managed.engine.start_again()?;
    agent.online_again()?;
    assert_eq!(visited_with(&managed, &agent, managed.token())?, 200);
    assert_eq!(visited_with(&managed, &agent, "a.b.c")?, 401);
    assert_eq!(managed.metric("svc_control_plane_connected")?, 0);

    // It resumes at its position.
    managed.control.start_again()?;
    let (new, _) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&new)?;
    assert_eq!(
        managed.metric("svc_control_plane_snapshots_total")?,
        0,
        "it received a full snapshot again"
    );
    Ok(())
}

const TUNNELS: usize = 200;
