//! A PostgreSQL server for this test binary: its own directory, its own socket, no network.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::{Uid, User};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Makes an empty database and returns its address. The server is started by the first test that
/// asks.
pub(crate) async fn new_database() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let Some(programs) = std::env::var_os("SVC_TEST_PG_BIN").map(PathBuf::from) else {
        panic!("SVC_TEST_PG_BIN is not set: run cargo xtask test");
    };
    let started = move || SERVER.get_or_init(|| Server::start(&programs));
    let server = tokio::task::spawn_blocking(started).await.unwrap();
    let name = format!("t{}", COUNTER.fetch_add(1, Ordering::Relaxed));
    let mut connection = PgConnection::connect(&server.address("postgres"))
        .await
        .unwrap();
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
        .execute(&mut connection)
        .await
        .unwrap();
    server.address(&name)
}

struct Server {
    directory: PathBuf,
    /// Waits for the end of its input, which comes when this process ends, however it ends; then
    /// it stops the server and removes the directory.
    _watch: Child,
}

impl Server {
    fn start(programs: &Path) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("svc-pg-")
            .tempdir()
            .unwrap()
            .keep();
        let mut shell = Command::new("/bin/sh");
        // PostgreSQL refuses to run as root.
        if Uid::effective().is_root() {
            let user = User::from_name("nobody").unwrap().unwrap();
            chown(&directory, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
            shell.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let mut watch = shell
            .arg("-ec")
            .arg(SCRIPT)
            .env("PATH", path(programs))
            .env("DIRECTORY", &directory)
            .env("LC_ALL", "C")
            .env_remove("PGDATA")
            .current_dir(&directory)
            // An interrupt at the terminal ends the tests; the watch ends itself after them.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let output = watch.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        if said != "ready\n" {
            let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
            panic!("PostgreSQL did not start: {log}");
        }
        watch.stdin.as_mut().unwrap().flush().unwrap();
        Self {
            directory,
            _watch: watch,
        }
    }

    fn address(&self, database: &str) -> String {
        let socket = self.directory.to_str().unwrap().replace('/', "%2F");
        format!("postgres://svc@localhost/{database}?host={socket}")
    }
}

fn path(programs: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let rest = std::env::split_paths(&path);
    std::env::join_paths(std::iter::once(programs.to_owned()).chain(rest)).unwrap()
}

/// Durability is switched off: nobody reads these files after a crash.
const SCRIPT: &str = r#"
trap 'pg_ctl stop --silent --mode immediate --pgdata "$DIRECTORY/data" >/dev/null 2>&1 || :; cd /; rm -rf "$DIRECTORY"' EXIT
initdb --pgdata "$DIRECTORY/data" --username svc --auth trust --encoding UTF8 --no-sync >"$DIRECTORY/log" 2>&1
pg_ctl start --silent --wait --pgdata "$DIRECTORY/data" --log "$DIRECTORY/log" --options "-k $DIRECTORY \
    -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off \
    -c max_connections=300 -c autovacuum=off" </dev/null
echo ready
read -r _ || :
"#;
