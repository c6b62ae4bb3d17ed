//! PostgreSQL servers for this test binary, with their own directories and sockets, and without a
//! network.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nix::unistd::{Uid, User};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Creates an empty database and returns its address. The first test that needs the server starts
/// it.
pub(crate) async fn new_database() -> String {
    shared().await.new_database().await
}

/// Copies a database of the same server that has no connections, and returns the address of the
/// copy.
pub(crate) async fn copy_of(template: &str) -> String {
    let (path, _) = template.split_once('?').unwrap();
    let (_, name) = path.rsplit_once('/').unwrap();
    shared().await.database_like(name).await
}

/// Waits until a transaction of the database waits for a lock.
pub(crate) async fn wait_for_lock_waiter(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let wait = async {
        while sqlx::query_scalar::<_, i64>(waiting)
            .fetch_one(&mut connection)
            .await
            .unwrap()
            == 0
        {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(WAIT_LIMIT, wait).await;
    assert!(waited.is_ok(), "no transaction waits for a lock");
    connection.close().await.unwrap();
}

/// Time limit on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

async fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let started = || SERVER.get_or_init(|| Server::start(""));
    tokio::task::spawn_blocking(started).await.unwrap()
}

/// A server. It stops with this process, however that ends.
pub(crate) struct Server {
    directory: PathBuf,
    /// Reads commands until the end of its input. Then it stops the server and removes the
    /// directory.
    watch: Child,
    tell: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Server {
    /// A test's own server, whose commits survive a crash.
    pub(crate) async fn durable() -> Self {
        let start = || Self::start("-c synchronous_commit=on");
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    fn start(settings: &str) -> Self {
        let Some(programs) = std::env::var_os("SVC_TEST_PG_BIN").map(PathBuf::from) else {
            panic!("SVC_TEST_PG_BIN is not set: run cargo xtask test");
        };
        let directory = tempfile::Builder::new()
            .prefix("svc-pg-")
            .tempdir_in(parent_directory())
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
            .env("PATH", path(&programs))
            .env("DIRECTORY", &directory)
            .env("SETTINGS", settings)
            .env("LC_ALL", "C")
            .env_remove("PGDATA")
            .current_dir(&directory)
            // Ctrl-C at the terminal ends the tests. The watch process ends itself after them.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Self {
            directory,
            tell: watch.stdin.take().unwrap(),
            said: BufReader::new(watch.stdout.take().unwrap()),
            watch,
        };
        server.expect_ready();
        server
    }

    /// Kills the server, as in a crash of the machine, without closing its connections.
    pub(crate) fn kill(&mut self) {
        self.command("kill");
    }

    /// Restarts it after [`Self::kill`].
    pub(crate) fn start_again(&mut self) {
        self.command("start");
    }

    fn command(&mut self, command: &str) {
        writeln!(self.tell, "{command}").unwrap();
        self.expect_ready();
    }

    fn expect_ready(&mut self) {
        let mut said = String::new();
        self.said.read_line(&mut said).unwrap();
        if said != "ready\n" {
            let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            panic!("PostgreSQL did not execute the command: {log}");
        }
    }

    /// Creates an empty database and returns its address.
    pub(crate) async fn new_database(&self) -> String {
        self.database_like("template1").await
    }

    async fn database_like(&self, template: &str) -> String {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&self.address("postgres"))
            .await
            .unwrap();
        sqlx::query(AssertSqlSafe(format!(
            "CREATE DATABASE {name} TEMPLATE {template}"
        )))
        .execute(&mut connection)
        .await
        .unwrap();
        self.address(&name)
    }

    fn address(&self, database: &str) -> String {
        let socket = self.directory.to_str().unwrap().replace('/', "%2F");
        format!("postgres://svc@localhost/{database}?host={socket}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of the input stops the process, which removes the directory.
        writeln!(self.tell, "stop").ok();
        self.watch.wait().ok();
    }
}

/// The parent of the servers' directories: in memory if there is enough of it. A database has about
/// a thousand files, and to create them takes ten times as long on a disk.
fn parent_directory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let available = statvfs(memory).map_or(0, |status| {
        status.blocks_available() * status.fragment_size()
    });
    if available >= REQUIRED_MEMORY {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// In bytes: twice the databases of the largest test program, 400 of 13 MB.
const REQUIRED_MEMORY: u64 = 10 << 30;

fn path(programs: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let rest = std::env::split_paths(&path);
    std::env::join_paths(std::iter::once(programs.to_owned()).chain(rest)).unwrap()
}

/// Durability is mostly switched off, because the files are not used after a crash of the machine.
const SCRIPT: &str = r#"
trap 'pg_ctl stop --silent --mode immediate --pgdata "$DIRECTORY/data" >/dev/null 2>&1 || :; cd /; rm -rf "$DIRECTORY"' EXIT
start() {
    pg_ctl start --silent --wait --pgdata "$DIRECTORY/data" --log "$DIRECTORY/log" --options "-k $DIRECTORY         -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off         -c max_connections=500 -c autovacuum=off $SETTINGS" </dev/null >/dev/null 2>&1
}
initdb --pgdata "$DIRECTORY/data" --username svc --auth trust --encoding UTF8 --no-sync >"$DIRECTORY/log" 2>&1
start
echo ready
while read -r command; do
    case $command in
        kill)
            parent=$(head -n 1 "$DIRECTORY/data/postmaster.pid")
            # Its children would finish what they are at.
            kill -KILL "$parent" $(cat "/proc/$parent/task/$parent/children")
            ;;
        # What was killed leaves its memory to its children for a moment.
        start) until start; do sleep 0.1; done ;;
        *) exit ;;
    esac
    echo ready
done
"#;
