//! A test socket in the role of systemd.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use daemon::supervisor::Supervisor;
use tempfile::TempDir;

const PID: u32 = 7;

fn told_by(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let read = socket.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..read].to_vec()).unwrap()
}

fn environment(variables: &[(&str, &str)]) -> io::Result<Supervisor> {
    let owned = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Supervisor::of_environment(owned, PID)
}

#[test]
fn a_supervisor_at_a_path_is_notified_of_each_step() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let supervisor = environment(&[("NOTIFY_SOCKET", path.to_str().unwrap())]).unwrap();
    supervisor.ready();
    assert_eq!(told_by(&socket), "READY=1");
    supervisor.status("2 tunnels\nREADY=0");
    assert_eq!(told_by(&socket), "STATUS=2 tunnels READY=0");
    supervisor.reloading();
    let reloading = told_by(&socket);
    let at = reloading
        .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
        .unwrap();
    assert!(at.parse::<u64>().unwrap() > 0, "{reloading}");
    supervisor.stopping();
    assert_eq!(told_by(&socket), "STOPPING=1");
    assert_eq!(supervisor.beat_interval(), None);
}

#[test]
fn a_supervisor_with_an_abstract_socket_gets_watchdog_messages() {
    let name = format!("svc-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    let supervisor = environment(&[
        ("NOTIFY_SOCKET", &format!("@{name}")),
        ("WATCHDOG_USEC", "3000000"),
        ("WATCHDOG_PID", "7"),
    ])
    .unwrap();
    assert_eq!(
        supervisor.beat_interval(),
        Some(Duration::from_millis(1500))
    );
    supervisor.send_watchdog_beat();
    assert_eq!(told_by(&socket), "WATCHDOG=1");
}

#[test]
fn a_watchdog_of_another_process_is_ignored() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("notify");
    let _socket = UnixDatagram::bind(&path).unwrap();
    let supervisor = environment(&[
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "3000000"),
        ("WATCHDOG_PID", "8"),
    ])
    .unwrap();
    assert_eq!(supervisor.beat_interval(), None);
}

#[test]
fn without_a_supervisor_nothing_is_sent_and_an_invalid_address_is_an_error() {
    let nobody = environment(&[("WATCHDOG_USEC", "3000000")]).unwrap();
    nobody.ready();
    assert_eq!(nobody.beat_interval(), None);
    for wrong in ["vsock:2:1", "relative", "/nonexistent/notify"] {
        assert!(environment(&[("NOTIFY_SOCKET", wrong)]).is_err(), "{wrong}");
    }
}
