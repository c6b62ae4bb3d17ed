use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{Uid, User, chown};

use crate::{provided, run};

/// A PostgreSQL server of one test, with its own directory and socket and without a network. It
/// stops when the value is dropped, and when the test process exits or crashes.
pub struct Postgres {
    directory: PathBuf,
    /// Reads commands until the end of its input. Then it stops the server and removes the
    /// directory.
    supervisor: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Postgres {
    /// Starts one with an empty database.
    ///
    /// # Errors
    /// PostgreSQL is not installed or does not start; its log is part of the error.
    pub fn start() -> Result<Self> {
        let programs = provided("SVC_TEST_PG_BIN")?;
        let directory = tempfile::Builder::new().prefix("svc-pg-").tempdir()?.keep();
        let mut shell = Command::new("/bin/sh");
        // PostgreSQL refuses to run as root.
        if Uid::effective().is_root() {
            let user = User::from_name("nobody")?.context("there is no user `nobody`")?;
            chown(&directory, Some(user.uid), Some(user.gid))?;
            shell.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let mut watch = shell
            .args(["-ec", SCRIPT])
            .env("PATH", path(&programs)?)
            .env("DIRECTORY", &directory)
            .env("LC_ALL", "C")
            .env_remove("PGDATA")
            .current_dir(&directory)
            // Ctrl-C at the terminal ends the tests. The watch process ends itself after them.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut server = Self {
            directory,
            commands: watch.stdin.take().context("no standard input")?,
            replies: BufReader::new(watch.stdout.take().context("no standard output")?),
            supervisor: watch,
        };
        server.expect_done()?;
        Ok(server)
    }

    /// Stops it, and disconnects its clients.
    ///
    /// # Errors
    /// It does not stop.
    pub fn stop(&mut self) -> Result<()> {
        self.command("stop")
    }

    /// Restarts it after [`Self::stop`].
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(&mut self) -> Result<()> {
        self.command("start")
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    fn url_of(&self, database: &str) -> String {
        let socket = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://svc@localhost/{database}?host={socket}")
    }

    /// Writes a dump of its database to `file`.
    ///
    /// # Errors
    /// `pg_dump` fails; its output is part of the error.
    pub fn dump(&self, file: &Path) -> Result<()> {
        let mut dump = client("pg_dump")?;
        dump.args(["--format=custom", "--file"]).arg(file);
        run(dump.arg(self.url())).map(drop)
    }

    /// Restores a dump into the new database `name`, and returns its address.
    ///
    /// # Errors
    /// A program fails; its output is part of the error.
    pub fn restore(&self, file: &Path, name: &str) -> Result<String> {
        let create = format!("CREATE DATABASE {name}");
        run(client("psql")?.args(["--command", &create, &self.url()]))?;
        let url = self.url_of(name);
        let mut restore = client("pg_restore")?;
        restore.args([
            "--clean",
            "--if-exists",
            "--no-owner",
            "--single-transaction",
        ]);
        run(restore.args(["--dbname", &url]).arg(file))?;
        Ok(url)
    }

    fn command(&mut self, command: &str) -> Result<()> {
        writeln!(self.commands, "{command}")?;
        self.expect_done()
    }

    fn expect_done(&mut self) -> Result<()> {
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        let log = || std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        ensure!(line == "done\n", "PostgreSQL does not obey: {}", log());
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Stops the process, which removes the directory.
        writeln!(self.commands, "end").ok();
        self.supervisor.wait().ok();
    }
}

/// A program of PostgreSQL.
fn client(name: &str) -> Result<Command> {
    Ok(Command::new(provided("SVC_TEST_PG_BIN")?.join(name)))
}

fn path(programs: &Path) -> Result<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let rest = env::split_paths(&path);
    let all = std::iter::once(programs.to_owned()).chain(rest);
    Ok(env::join_paths(all)?)
}

/// Durability is mostly switched off, because the files are not used after a crash of the machine.
const SCRIPT: &str = r#"
stop() {
    pg_ctl stop --silent --wait --mode fast --pgdata "$DIRECTORY/data" </dev/null >/dev/null 2>&1
}
start() {
    pg_ctl start --silent --wait --pgdata "$DIRECTORY/data" --log "$DIRECTORY/log" --options "-k $DIRECTORY \
        -c listen_addresses= -c fsync=off -c full_page_writes=off" </dev/null >/dev/null 2>&1
}
trap 'stop || :; cd /; rm -rf "$DIRECTORY"' EXIT
initdb --pgdata "$DIRECTORY/data" --username svc --auth trust --encoding UTF8 --no-sync >"$DIRECTORY/log" 2>&1
start
echo done
while read -r command; do
    case $command in
        stop) stop ;;
        start) start ;;
        *) exit ;;
    esac
    echo done
done
"#;
