//! The platform, its database or the network to it is down. The engine serves with its stored
//! state, and neither side loses data.

use anyhow::Result;
use e2e::{Curl, ManagedPair, eventually};

use super::{every_record_is_there, publish, visited_with, visits};

#[test]
fn a_platform_that_was_killed_catches_up_on_sqlite() -> Result<()> {
    let mut managed = ManagedPair::on_sqlite()?;
    let (ended, id) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&ended)?;
    let agent = publish(&managed)?;
    let session = signed_in(&managed, &agent.url("/session"))?;
    let visits = visits(&managed, &agent);
    visits.more(10)?;

    managed.control.process().kill();
    let lost = || Ok(managed.metric("svc_control_plane_connected")? == 0);
    eventually("the loss of the platform", lost)?;
    visits.more(10)?;
    assert_eq!(session.visit(&managed)?, 200, "who is signed in stays so");
    assert_eq!(visited_with(&managed, &agent, &ended)?, 200);

    managed.control.start_again()?;
    managed.revoke(&managed.control, &id)?;
    eventually("the end of the token", || {
        Ok(managed.api_status(&ended)? == 401)
    })?;
    assert_eq!(visited_with(&managed, &agent, &ended)?, 401);
    assert_eq!(
        managed.metric("svc_control_plane_snapshots_total")?,
        1,
        "there was a gap"
    );
    visits.more(10)?;
    every_record_is_there(&managed, visits.stop()?)
}

/// The database is shared. Changes that another process made while the engine's own process was
/// dead arrive in order after its restart.
#[test]
fn a_platform_that_was_killed_catches_up_on_postgres() -> Result<()> {
    let mut managed = ManagedPair::on_postgres()?;
    let second = managed.control.second()?;
    let (ended, id) = managed.issue(&second)?;
    managed.wait_until_accepted(&ended)?;
    let agent = publish(&managed)?;
    let visits = visits(&managed, &agent);
    visits.more(10)?;

    managed.control.process().kill();
    let (new, _) = managed.issue(&second)?;
    managed.revoke(&second, &id)?;
    visits.more(10)?;
    assert_eq!(
        managed.api_status(&ended)?,
        204,
        "nobody could have told the engine"
    );
    assert_eq!(managed.api_status(&new)?, 401);

    managed.control.start_again()?;
    managed.wait_until_accepted(&new)?;
    // It was revoked after the other was issued.
    eventually("the end of the token", || {
        Ok(managed.api_status(&ended)? == 401)
    })?;
    assert_eq!(
        managed.metric("svc_control_plane_snapshots_total")?,
        1,
        "there was a gap"
    );
    visits.more(10)?;
    every_record_is_there(&managed, visits.stop()?)
}

/// A silent link: a short interruption is not noticed, a long one is, and after both everything is
/// delivered.
#[test]
fn an_interrupted_link_stops_nothing() -> Result<()> {
    let managed = ManagedPair::on_sqlite()?;
    let (ended, id) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&ended)?;
    let agent = publish(&managed)?;
    let visits = visits(&managed, &agent);

    managed.link.interrupt();
    managed.revoke(&managed.control, &id)?;
    visits.more(10)?;
    assert_eq!(managed.api_status(&ended)?, 204, "the link was not cut");
    managed.link.restore();
    eventually("the end of the token", || {
        Ok(managed.api_status(&ended)? == 401)
    })?;

    managed.link.interrupt();
    let (new, _) = managed.issue(&managed.control)?;
    let lost = || Ok(managed.metric("svc_control_plane_connected")? == 0);
    eventually("the loss of the platform", lost)?;
    let found = managed.doctor()?;
    assert_eq!(found["control_plane"], "warn", "{found}");
    visits.more(10)?;
    assert!(managed.metric("svc_control_plane_reports_waiting")? > 0);
    managed.link.restore();
    managed.wait_until_accepted(&new)?;
    let found = managed.doctor()?;
    let well = [
        "engine",
        "token",
        "control_plane",
        "engine_tunnels",
        "engine_clients",
    ];
    assert!(well.iter().all(|check| found[*check] == "pass"), "{found}");
    assert_eq!(
        managed.metric("svc_control_plane_snapshots_total")?,
        1,
        "there was a gap"
    );
    every_record_is_there(&managed, visits.stop()?)
}

#[test]
fn a_missing_database_stops_no_visitor() -> Result<()> {
    let mut managed = ManagedPair::on_postgres()?;
    let agent = publish(&managed)?;
    let visits = visits(&managed, &agent);
    visits.more(10)?;

    if let Some(postgres) = &mut managed.postgres {
        postgres.stop()?;
    }
    let readyz = managed.control.url("/readyz");
    let ready = |wanted| move |status: u64| status == wanted;
    let becomes = |so: &dyn Fn(u64) -> bool| {
        eventually("readiness", || {
            Ok(so(Curl::plain().get(&[&readyz])?.status))
        })
    };
    becomes(&ready(503))?;
    assert_eq!(
        Curl::plain()
            .get(&[&managed.control.url("/healthz")])?
            .status,
        200
    );
    visits.more(10)?;

    if let Some(postgres) = &mut managed.postgres {
        postgres.start_again()?;
    }
    becomes(&ready(200))?;
    let (new, _) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&new)?;
    assert_eq!(
        managed.metric("svc_control_plane_snapshots_total")?,
        1,
        "there was a gap"
    );
    visits.more(10)?;
    every_record_is_there(&managed, visits.stop()?)
}

/// A browser with a session at the tunnel.
struct Session {
    jar: String,
    url: String,
}

/// Signs in at the platform and returns, like the administrator's browser.
fn signed_in(managed: &ManagedPair, url: &str) -> Result<Session> {
    let session = Session {
        jar: managed.jar(),
        url: url.to_owned(),
    };
    let jar = session.jar.as_str();
    let visited = Curl::new(&managed.engine).get(&["-L", "-b", jar, "-c", jar, HTML, url])?;
    assert_eq!(visited.status, 200, "{visited:?}");
    assert!(
        visited.heads.contains("/edge/sign-in"),
        "nobody had to sign in: {visited:?}"
    );
    Ok(session)
}

impl Session {
    /// The status of one more visit, without redirects.
    fn visit(&self, managed: &ManagedPair) -> Result<u64> {
        let curl = Curl::new(&managed.engine);
        Ok(curl.get(&["-b", &self.jar, HTML, &self.url])?.status)
    }
}

/// Accept header of browsers.
const HTML: &str = "-HAccept: text/html";
