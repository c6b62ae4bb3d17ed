//! One installation: a platform, an engine, an agent, a visitor and a dialling client.

use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::server::{Server, eventually, text};
use crate::program;

/// Program of each part: old or new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixture([bool; 3]);

impl Mixture {
    /// Every combination of the two.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (1..7).map(|bits| Self([bits & 1 > 0, bits & 2 > 0, bits & 4 > 0]))
    }

    pub(super) fn programs<'a>(self, old: &'a Path, new: &'a Path) -> Programs<'a> {
        let [platform, engine, agent] = self.0.map(|is_new| if is_new { new } else { old });
        let [is_platform_new, is_engine_new, _] = self.0;
        Programs {
            installer: if is_platform_new && is_engine_new {
                new
            } else {
                old
            },
            platform,
            engine,
            agent,
        }
    }
}

impl fmt::Display for Mixture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [platform, engine, agent] = self.0.map(|is_new| if is_new { "new" } else { "old" });
        write!(
            formatter,
            "{platform} platform, {engine} engine, {agent} agent"
        )
    }
}

/// The program of each part.
#[derive(Clone, Copy)]
pub(super) struct Programs<'a> {
    /// Writes the configurations and creates the database: the older one of both servers, because
    /// it has neither the keys nor the schema of the newer one.
    installer: &'a Path,
    platform: &'a Path,
    engine: &'a Path,
    agent: &'a Path,
}

/// Publishes, visits, dials and queries the record of the visit.
pub(super) fn visit(folder: &Path, programs: Programs<'_>) -> Result<()> {
    let stack = Stack::install(folder, programs.installer)?;
    // Creates the database, the authority, an administrator and a project.
    let first = stack.up(programs.installer)?;
    let ready = first.ready().clone();
    first.stop()?;

    let platform = stack.server(programs.platform, "platform")?;
    let engine = stack.server(programs.engine, "engine")?;
    let log_ends = || {
        format!(
            "platform: {}\nengine: {}",
            platform.log_end(),
            engine.log_end()
        )
    };
    let agent = stack.agent(programs.agent, &ready).with_context(log_ends)?;
    stack.expect_page(&agent).with_context(log_ends)?;

    let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = echo.local_addr()?.port().to_string();
    thread::spawn(move || answer(&echo));
    let mut forward = stack.command(programs.agent, &ready)?;
    forward.args(["forward", &port, "--bytestream", "--no-publish"]);
    forward.args(["--name", "echo", "--output", "json"]);
    let _private = Server::start(&mut forward, &stack.log("private"))?;
    // If there are two programs, each of them dials.
    for dialler in [programs.platform, programs.engine] {
        let mut dial = stack.command(dialler, &ready)?;
        let reply = dial_output(dial.args(["dial", "svc://echo"]))?;
        ensure!(reply == QUESTION, "the echo is {reply:?}");
    }

    // The platform lists the reports of the engine.
    eventually("the record of the visit", || {
        let mut logs = stack.command(programs.agent, &ready)?;
        logs.args(["project", "logs", "--output", "json", "--project"])
            .arg(text(&ready, "project_endpoint")?);
        let listed = program::output(&mut logs)?;
        ensure!(listed.contains("\"stream.summary\""), "{listed}");
        Ok(())
    })
    .with_context(log_ends)?;
    drop(agent);
    engine.stop()?;
    platform.stop()
}

/// Replaces the program of a running engine while its platform and its agent keep running: by a
/// reload if the older program supports it, else by a restart.
pub(super) fn replace_engine(folder: &Path, old: &Path, new: &Path) -> Result<()> {
    let stack = Stack::install(folder, old)?;
    let first = stack.up(old)?;
    let ready = first.ready().clone();
    first.stop()?;

    let platform = stack.server(old, "platform")?;
    let installed = folder.join("svc");
    symlink(path::absolute(old)?, &installed)?;
    let mut engine = stack.server(&installed, "engine")?;
    let agent = stack.agent(old, &ready)?;
    stack.expect_page(&agent)?;
    let next = folder.join("next");
    symlink(path::absolute(new)?, &next)?;
    fs::rename(next, &installed)?;
    if engine.can_reload()? {
        eprintln!("    by a reload");
        engine.reload()?;
    } else {
        eprintln!("    by a restart, because the older program has no reload");
        engine.stop()?;
        engine = stack.server(&installed, "engine")?;
    }
    stack
        .expect_page(&agent)
        .with_context(|| engine.log_end())?;
    drop(agent);
    engine.stop()?;
    platform.stop()
}

/// A folder with the data of `svc up`, and a page to publish.
pub(super) struct Stack(PathBuf);

impl Stack {
    /// Creates a new folder.
    pub(super) fn install(folder: &Path, program: &Path) -> Result<Self> {
        ensure!(program.is_file(), "{} is not there", program.display());
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder.join("pages"))?;
        fs::write(folder.join("pages/page.txt"), PAGE)?;
        Ok(Self(folder.to_owned()))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.log"))
    }

    /// Platform, engine and relay of one program, over the same data each time.
    pub(super) fn up(&self, program: &Path) -> Result<Server> {
        let mut up = Command::new(program);
        up.args(["up", "--output", "json", "--data-dir"])
            .arg(self.0.join("data"))
            .arg("--config")
            .arg(self.0.join("config"));
        for (flag, port) in PORTS {
            up.args([flag, port]);
        }
        Server::start(&mut up, &self.log("up"))
    }

    /// The platform or the engine, with the configuration from `svc up`.
    fn server(&self, program: &Path, name: &str) -> Result<Server> {
        let mut server = Command::new(program);
        server
            .args([name, "--output", "json", "-c"])
            .arg(self.0.join(format!("data/{name}.yaml")));
        Server::start(&mut server, &self.log(name)).with_context(|| name.to_owned())
    }

    /// An agent that publishes the page.
    pub(super) fn agent(&self, program: &Path, ready: &Value) -> Result<Server> {
        let mut forward = self.command(program, ready)?;
        forward
            .arg("forward")
            .arg(self.0.join("pages"))
            .args(["--name", "pages", "--output", "json"]);
        Server::start(&mut forward, &self.log("agent")).context("agent")
    }

    /// A command for the project of `svc up`.
    fn command(&self, program: &Path, ready: &Value) -> Result<Command> {
        let engine = text(ready, "engine_url")?;
        let engine = engine.strip_prefix("https://").context("not https")?;
        let mut command = Command::new(program);
        command
            .env("SVC_CONFIG", self.0.join("config"))
            .env("SVC_ENGINE", engine)
            .env("SVC_TOKEN", text(ready, "token")?)
            .env("SVC_CA_FILE", text(ready, "ca_file")?)
            .env("SVC_API_URL", text(ready, "base_url")?);
        Ok(command)
    }

    /// The page is served through the tunnel of the agent, possibly after a reconnect.
    pub(super) fn expect_page(&self, agent: &Server) -> Result<()> {
        let url = format!("{}/page.txt", agent.text("forwarding")?);
        eventually("the page", || {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--fail", "--max-time", "10"])
                .arg("--cacert")
                .arg(self.0.join("data/ca.pem"))
                .arg(&url);
            let page = program::output(&mut curl)?;
            ensure!(page == PAGE, "the page is {page:?}");
            Ok(())
        })
        .with_context(|| format!("agent: {}", agent.log_end()))
    }
}

/// Returns the first bytes of each connection, and closes it.
fn answer(echo: &TcpListener) {
    for stream in echo.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut bytes = [0; QUESTION.len()];
        if stream.read_exact(&mut bytes).is_ok() {
            // The dialling client reports missing bytes.
            stream.write_all(&bytes).ok();
        }
    }
}

/// The output of a command.
fn dial_output(dial: &mut Command) -> Result<String> {
    let mut child = dial
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no pipe")?;
    stdin.write_all(QUESTION.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "dial: {stderr}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const PAGE: &str = "what was published\n";
const QUESTION: &str = "to the other end and back\n";

/// The same for every started program, as on separate machines: below the ephemeral ports of the
/// kernel, and below the ports that tests lease.
const PORTS: [(&str, &str); 5] = [
    ("--port", "9470"),
    ("--metrics-port", "9471"),
    ("--platform-port", "9472"),
    ("--turn-port", "9473"),
    ("--turn-tls-port", "9474"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mixture_has_both_programs() {
        let (old, new) = (Path::new("old"), Path::new("new"));
        let all: Vec<_> = Mixture::all()
            .map(|mixture| {
                let programs = mixture.programs(old, new);
                [programs.platform, programs.engine, programs.agent]
            })
            .collect();
        assert_eq!(all.len(), 6);
        for (at, programs) in all.iter().enumerate() {
            assert!(programs.contains(&old) && programs.contains(&new));
            assert!(!all[..at].contains(programs), "twice: {programs:?}");
        }
    }
}
