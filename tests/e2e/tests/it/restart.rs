//! An engine or an agent stops, normally or not, and restarts.

use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context as _, Result};
use e2e::{Agent, Call, Curl, Download, ManagedPair, Service, Svc, eventually};
use serde_json::{Value, json};

/// EN-9: the engine kept no state, and every tunnel returns.
#[test]
fn a_killed_engine_gets_its_agents_back() -> Result<()> {
    let mut svc = Svc::engine()?;
    let service = Service::mirror()?.to_string();
    let mut drawn = Agent::forward(&svc, &service, &["--http"])?;
    let mut asked = Agent::forward(&svc, &service, &["--http", "--hostname", "web"])?;
    let before = [drawn.hostname()?.to_owned(), asked.hostname()?.to_owned()];

    svc.process().kill();
    drawn.disconnected()?;
    asked.disconnected()?;
    svc.start_again()?;

    let curl = Curl::new(&svc);
    for (agent, before) in [&mut drawn, &mut asked].into_iter().zip(before) {
        let id = agent.online()["tunnel_id"].clone();
        agent.online_again()?;
        assert_eq!(agent.hostname()?, before);
        assert_ne!(agent.online()["tunnel_id"], id, "the tunnel was kept");
        assert_eq!(curl.get(&[&agent.url("/")])?.status, 200);
    }
    Ok(())
}

#[test]
fn after_a_crash_a_name_is_offline_until_its_agent_is_back() -> Result<()> {
    let grace = json!({"timeouts": {"startup_grace_seconds": 3600}});
    let mut svc = Svc::engine_with(&grace)?;
    let service = Service::mirror()?.to_string();
    let flags = ["--http", "--hostname", "web"];
    let mut agent = Agent::forward(&svc, &service, &flags)?;
    let url = agent.url("/");
    agent.process().kill();
    svc.process().kill();
    svc.start_again()?;

    let curl = Curl::new(&svc);
    for version in ["--http1.1", "--http2"] {
        let early = curl.get(&[version, &url])?;
        assert_eq!(early.status, 503, "{early:?}");
        assert_eq!(early.header("retry-after"), Some("1"), "{early:?}");
        assert_eq!(early.json()["code"], "tunnel_offline", "{early:?}");
    }
    let _agent = Agent::forward(&svc, &service, &flags)?;
    assert_eq!(curl.get(&[&url])?.status, 200);
    Ok(())
}

/// The drill of `docs/backup.md` with PostgreSQL: a dump is restored into a new database, and the
/// platform starts with it. Tunnels stay online, and tokens of before and after it are accepted.
#[test]
fn a_platform_starts_with_a_restored_dump() -> Result<()> {
    let mut managed = ManagedPair::on_postgres()?;
    let service = Service::mirror()?.to_string();
    let agent = managed.forward(&service, &["--http", "--hostname", "web"])?;
    let curl = Curl::new(&managed.engine);
    assert_eq!(curl.get(&[&agent.url("/")])?.status, 200);
    let directory = tempfile::tempdir()?;
    let dump = directory.path().join("platform.dump");
    let postgres = managed.postgres.as_ref().context("no PostgreSQL")?;
    postgres.dump(&dump)?;
    let (lost, lost_id) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&lost)?;

    let postgres = managed.postgres.as_ref().context("no PostgreSQL")?;
    let restored = postgres.restore(&dump, "restored")?;
    managed.control.start_with_database(&restored)?;
    assert_eq!(curl.get(&[&agent.url("/")])?.status, 200);
    let whoami = managed.call("GET", "/api/whoami", None)?;
    assert_eq!(whoami.status, 200, "{whoami:?}");
    let listed = managed.call("GET", "/api/credentials", None)?.json();
    assert!(!listed.to_string().contains(&lost_id), "{listed}");
    // The engine follows the restored database: it accepts what was issued since, and no longer
    // what the dump lacks.
    let (token, _) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&token)?;
    eventually("the end of the lost token", || {
        Ok(managed.api_status(&lost)? == 401)
    })?;
    assert_eq!(managed.api_status(managed.token())?, 204);
    assert_eq!(curl.get(&[&agent.url("/")])?.status, 200);
    Ok(())
}

#[test]
fn a_killed_agent_is_noticed_immediately() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::mirror()?.to_string();
    let flags = ["--http", "--hostname", "web"];
    let mut agent = Agent::forward(&svc, &service, &flags)?;
    let (curl, events) = (Curl::new(&svc), svc.events()?);
    assert_eq!(curl.get(&[&agent.url("/")])?.status, 200);

    agent.process().kill();
    events.json("end of the tunnel", |event| {
        event["type"] == "tunnel.deleted"
    })?;
    let offline = curl.get(&[&agent.url("/")])?;
    assert_eq!(offline.status, 503, "{offline:?}");
    assert!(offline.header("retry-after").is_some(), "{offline:?}");

    let next = Agent::forward(&svc, &service, &flags)?;
    assert_eq!(next.hostname()?, agent.hostname()?);
    assert_eq!(curl.get(&[&next.url("/")])?.status, 200);
    Ok(())
}

#[test]
fn a_second_instance_takes_over_and_the_first_does_not_reclaim_it() -> Result<()> {
    for flags in [["--http", "--hostname", "web"], ["--http", "--name", "web"]] {
        let svc = Svc::engine()?;
        let events = svc.events()?;
        let services = [Service::start()?, Service::start()?];
        let mut first = Agent::forward(&svc, &services[0].address(), &flags)?;
        // Streams that the first one has accepted are served to their end.
        let (mut call, download) = begin(&svc, &first, &services[0])?;

        let second = Agent::forward(&svc, &services[1].address(), &flags)?;
        call.write("end")?;
        drop(call);
        assert_eq!(download.rest()?, b"end");
        assert_eq!(
            first.process().wait_for_exit()?,
            Some(4),
            "{}",
            first.process().log()
        );

        let asked = Curl::new(&svc).start(&[&second.url("/")])?;
        let mut call = services[1].next()?;
        call.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")?;
        assert_eq!(asked.rest()?, b"second");

        // Two connected and one disconnected.
        let id = second.online()["tunnel_id"].clone();
        let mut kinds = Vec::new();
        events.json("last event", |event| {
            kinds_of(event, &mut kinds);
            event["type"] == "client.deleted"
        })?;
        let count = |wanted: &str| kinds.iter().filter(|kind| **kind == wanted).count();
        assert_eq!(count("tunnel.created"), 2, "{kinds:?}");
        assert_eq!(count("tunnel.deleted"), 1, "{kinds:?}");
        let bearer = format!("Authorization: Bearer {}", svc.token());
        let list = format!("https://{}/api/tunnels", svc.address());
        let left = Curl::new(&svc).get(&["-H", &bearer, &list])?.json();
        assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
        assert_eq!(left[0]["id"], id);
    }
    Ok(())
}

/// OP-1: a restart is a drain, and then every tunnel returns.
#[test]
fn an_engine_that_is_asked_to_stop_finishes_open_requests() -> Result<()> {
    let mut svc = Svc::engine()?;
    let service = Service::start()?;
    let mut agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let (mut call, mut download) = begin(&svc, &agent, &service)?;

    svc.process().terminate()?;
    until_refused(&svc)?;
    call.write("more ")?;
    assert_eq!(download.read(5)?, b"more ");
    call.write("end")?;
    drop(call);
    assert_eq!(download.rest()?, b"end");
    assert_eq!(svc.process().wait_for_exit()?, Some(0), "{}", svc.log());

    svc.start_again()?;
    agent.online_again()?;
    let (mut call, download) = begin(&svc, &agent, &service)?;
    call.write("again")?;
    drop(call);
    assert_eq!(download.rest()?, b"again");
    Ok(())
}

#[test]
fn the_second_signal_stops_an_engine_immediately() -> Result<()> {
    let mut svc = Svc::engine_with(&json!({"timeouts": {"drain_seconds": 600}}))?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let (_call, download) = begin(&svc, &agent, &service)?;

    svc.process().terminate()?;
    until_refused(&svc)?;
    svc.process().terminate()?;
    // The service has not ended its answer, so only the signal can stop it: a drain takes longer
    // than this test waits.
    assert!(svc.process().wait_for_exit()?.is_some(), "{}", svc.log());
    assert!(download.rest().is_err());
    Ok(())
}

#[test]
fn an_agent_that_is_asked_to_stop_finishes_open_requests() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let mut agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let (events, curl) = (svc.events()?, Curl::new(&svc));
    let (mut call, mut download) = begin(&svc, &agent, &service)?;

    agent.process().terminate()?;
    events.json("end of the tunnel", |event| {
        event["type"] == "tunnel.deleted"
    })?;
    let late = curl.get(&[&agent.url("/")])?;
    assert_eq!(late.status, 503, "{late:?}");
    call.write("more ")?;
    assert_eq!(download.read(5)?, b"more ");
    call.write("end")?;
    drop(call);
    assert_eq!(download.rest()?, b"end");
    assert_eq!(agent.process().wait_for_exit()?, Some(0));
    Ok(())
}

#[test]
fn the_second_signal_stops_an_agent_immediately() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let mut agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let events = svc.events()?;
    let (_call, download) = begin(&svc, &agent, &service)?;

    agent.process().terminate()?;
    events.json("end of the tunnel", |event| {
        event["type"] == "tunnel.deleted"
    })?;
    agent.process().terminate()?;
    assert!(agent.process().wait_for_exit()?.is_some());
    assert!(download.rest().is_err());
    Ok(())
}

/// A download in flight, whose first bytes have arrived.
fn begin(svc: &Svc, agent: &Agent, service: &Service) -> Result<(Call, Download)> {
    let mut download = Curl::new(svc).start(&["--http1.1", &agent.url("/slow")])?;
    let mut call = service.next()?;
    call.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun ")?;
    assert_eq!(download.read(6)?, b"begun ");
    Ok((call, download))
}

/// Waits until the engine accepts no connections. A closed listener sends no event, so this polls.
/// It sends no request, which the engine might have to finish.
fn until_refused(svc: &Svc) -> Result<()> {
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    let port: u16 = port.parse()?;
    eventually("the end of its listeners", || {
        Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err())
    })
}

fn kinds_of(event: &Value, kinds: &mut Vec<String>) {
    kinds.push(event["type"].as_str().unwrap_or_default().to_owned());
}
