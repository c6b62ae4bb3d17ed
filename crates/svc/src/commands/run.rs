//! `svc run`: runs many tunnels, from a file and from container labels.
//!
//! [`mod@file`] defines the file format, [`plan`] the checked configuration, and [`agent_set`] the
//! running agents. This file is the loop between them: it applies changes, reports events, and
//! notifies a supervisor of the state.

mod agent_set;
mod docker;
mod file;
mod file_poll;
mod inputs;
mod plan;
#[cfg(test)]
mod reference;
mod report;
mod tunnel;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;
use client::{CloseReason, Config, Tokens};
use daemon::{
    config::ConfigError,
    shutdown::Shutdown,
    signals::{Signal, Signals},
    supervisor::Supervisor,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval},
};
use transport::Workers;

pub(crate) use self::inputs::LOCAL_FILE_NAME;

use self::{
    agent_set::{AgentSet, AppliedChanges, EngineName, State},
    docker::{Docker, DockerFlags},
    file_poll::{Contents, Files},
    plan::Plan,
    report::Report,
    tunnel::TunnelReport,
};
use crate::client_key::ClientKey;
use crate::config_errors::print_all_but_last;
use crate::connection::{Connection, non_empty_path, path};
use crate::failure::Failure;
use crate::output;
use crate::output::Format;
use crate::process::{
    descriptors,
    lifecycle::{Health, LifecycleFlags},
    supervisor,
};

/// The flags of `svc run`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc run
  svc run tunnels.yaml --check
  svc run --docker

Changes to the file are applied while it runs; SIGHUP applies them immediately, and retries refused
tunnels. An invalid file changes nothing.")]
pub(crate) struct Args {
    /// Configuration file (YAML). Default: `svc.yaml` in the current directory, or else
    /// `agent.yaml` in the configuration directory
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Check the file, list all errors and exit
    #[arg(long)]
    check: bool,

    /// Print the JSON Schema of the file and exit
    #[arg(long, conflicts_with_all = ["file", "check"])]
    schema: bool,

    /// File with the token
    #[arg(
        long,
        env = "SVC_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true,
        value_parser = path()
    )]
    token_file: Option<PathBuf>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    docker: DockerFlags,

    #[command(flatten)]
    lifecycle: LifecycleFlags,

    #[command(flatten)]
    key: ClientKey,

    /// The tokens of `key`. All configurations share them, so that an agent can stay.
    #[arg(skip)]
    key_tokens: Option<Tokens>,

    #[command(flatten)]
    connection: Connection,
}

/// Runs tunnels until a signal, or until no engine accepts the token.
pub(crate) async fn run(mut args: Args) -> Result<(), Failure> {
    if args.schema {
        return output::line(&format!("{:#}", schema()));
    }
    args.key_tokens = args.key.tokens()?;
    let file = args.find_file()?;
    if args.check {
        return check(&args, file.as_deref());
    }
    descriptors::raise_limit();
    let supervisor = supervisor::connect()?;
    let shutdown = args.lifecycle.listen_for_signals()?;
    let health = args.lifecycle.health().await?;
    let hangups = Signals::new(Signal::HangUp)
        .map_err(|error| Failure::from_error("signal handlers cannot be installed", error))?;
    let workers = Workers::per_core("svc-agent")
        .map_err(|error| Failure::from_error("cannot start the worker threads", error))?;
    let (sender, reports) = mpsc::channel(REPORT_QUEUE_CAPACITY);
    let agents = AgentSet::new(
        workers.handles().to_vec(),
        shutdown.clone(),
        sender,
        health.metrics().clone(),
    );
    let docker = args.docker.start()?;
    let mut running = RunLoop {
        reporter: Report::new(args.output),
        args,
        file,
        files: Files::default(),
        handled: Contents::new(),
        loaded: LoadedFile::empty(),
        docker,
        agents,
        supervisor,
        health,
        shutdown,
        rejected: false,
        ready_reported: false,
        last_status: String::new(),
    };
    running.apply_initial().await?;
    running.serve(reports, hangups).await
}

/// The JSON Schema of the file.
pub(super) fn schema() -> serde_json::Value {
    daemon::config::schema::<file::AgentFile>()
}

/// The event loop of `svc run`, with its state.
struct RunLoop {
    args: Args,
    reporter: Report,
    file: Option<PathBuf>,
    files: Files,
    /// The file contents that were last applied or rejected.
    handled: Contents,
    loaded: LoadedFile,
    docker: Option<Docker>,
    agents: AgentSet,
    supervisor: Supervisor,
    health: Health,
    shutdown: Shutdown,
    /// True if the current file is rejected.
    rejected: bool,
    ready_reported: bool,
    last_status: String,
}

/// A valid file, with the connection settings of its engines.
struct LoadedFile {
    plan: Plan,
    engines: BTreeMap<EngineName, Config>,
}

impl RunLoop {
    /// Applies the first configuration. An error in it ends the command.
    async fn apply_initial(&mut self) -> Result<(), Failure> {
        self.files.set(self.file.iter().cloned().collect());
        let contents = self.files.read().await;
        let loaded = self.load(contents).await;
        self.loaded = loaded.map_err(|errors| failure(errors, self.args.output))?;
        let applied = self.apply(false)?;
        self.reporter.applied(&applied)
    }

    async fn serve(
        &mut self,
        mut reports: mpsc::Receiver<TunnelReport>,
        mut hangups: Signals,
    ) -> Result<(), Failure> {
        let (contents_sender, mut contents_receiver) = watch::channel(self.handled.clone());
        let poll_task = tokio::spawn(self.files.clone().follow(contents_sender));
        let mut watchdog_ticks = self.supervisor.beat_interval().map(|every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks
        });
        let ready_deadline = Instant::now() + READY_TIMEOUT;
        let drain = self.shutdown.drain().clone();
        let mut outcome = Ok(());
        loop {
            self.notify_supervisor(Instant::now() >= ready_deadline);
            tokio::select! {
                biased;
                () = drain.cancelled() => break,
                Some(tunnel_report) = reports.recv() => {
                    self.handle_report(tunnel_report)?;
                    if let Some(refusal) = self.agents.refused() {
                        outcome = Err(self.agents.explain(&refusal).await);
                        break;
                    }
                }
                Ok(()) = contents_receiver.changed() => {
                    let contents = contents_receiver.borrow_and_update().clone();
                    if contents != self.handled {
                        self.reload(contents, false).await?;
                    }
                }
                () = hangups.recv() => {
                    let contents = self.files.read().await;
                    self.reload(contents, true).await?;
                }
                () = docker::changed(self.docker.as_mut()) => self.containers_changed()?,
                () = supervisor::next_keepalive(watchdog_ticks.as_mut()) => self.supervisor.send_watchdog_beat(),
                () = tokio::time::sleep_until(ready_deadline), if !self.ready_reported => {}
            }
        }
        poll_task.abort();
        self.stop(&mut reports, watchdog_ticks).await?;
        outcome
    }

    fn handle_report(&mut self, tunnel_report: TunnelReport) -> Result<(), Failure> {
        match tunnel_report {
            TunnelReport::Status {
                key,
                status,
                target,
            } => {
                if !self.agents.store_status(&key, &status) {
                    // The tunnel was removed meanwhile, and the removal was reported.
                    return Ok(());
                }
                self.update_health();
                let port = self.agents.engine_port(&key);
                let failure = self.agents.disconnection(&key, &status);
                let failure = failure.as_ref();
                self.reporter
                    .status(&key, &status, &target, port, failure)?;
                if let Some(notice) = self.agents.address_notice(&key, &status) {
                    output::message(&format!("{key}: {notice}"));
                }
                Ok(())
            }
            TunnelReport::Stream { key, stream } => self.reporter.stream(&key, &stream),
            TunnelReport::Refused { engine, refusal } => {
                let engine = engine.map_or_else(String::new, |name| format!("engine {name}: "));
                output::message(&format!("{engine}{}", output::plain(&refusal.message)));
                Ok(())
            }
        }
    }

    /// Applies the current files, or reports why they are rejected.
    async fn reload(&mut self, contents: Contents, by_signal: bool) -> Result<(), Failure> {
        self.supervisor.reloading();
        let result = match self.load(contents).await {
            Ok(loaded) => {
                let before = std::mem::replace(&mut self.loaded, loaded);
                match self.apply(by_signal) {
                    Ok(applied) => {
                        self.rejected = false;
                        if by_signal || !applied.is_empty() {
                            self.reporter.applied(&applied)
                        } else {
                            Ok(())
                        }
                    }
                    Err(failure) => {
                        self.loaded = before;
                        self.reject(&[ConfigError::new("", failure.message())])
                    }
                }
            }
            Err(errors) => self.reject(&errors),
        };
        // The supervisor waits for the end of the reload that it was notified of.
        self.supervisor.ready();
        result
    }

    fn reject(&mut self, errors: &[ConfigError]) -> Result<(), Failure> {
        self.rejected = true;
        self.reporter.rejected(errors)
    }

    /// Reads and checks the file. The token and password files that it names are watched like the
    /// file itself, because a replaced secret must take effect, also one for which the file is
    /// rejected.
    async fn load(&mut self, mut contents: Contents) -> Result<LoadedFile, Vec<ConfigError>> {
        let (mut read, secret_files) = self.read_plan(&contents);
        let token_file = non_empty_path(self.args.token_file.as_ref()).cloned();
        let paths = self.file.iter().cloned().chain(token_file);
        let paths: Vec<_> = paths.chain(secret_files).collect();
        if !paths.iter().all(|path| contents.contains_key(path)) {
            self.files.set(paths);
            let latest = self.files.read().await;
            // The content that was parsed above is kept. The next poll detects newer content. Files
            // that are no longer polled are removed, or the next poll would differ.
            let is_config = |path: &PathBuf| Some(path) == self.file.as_ref();
            contents.retain(|path, _| is_config(path));
            contents.extend(latest.into_iter().filter(|(path, _)| !is_config(path)));
            // A password file may have changed before it was watched. The contents that count as
            // handled must not be newer than the plan.
            read = self.read_plan(&contents).0;
        }
        self.handled = contents;
        let plan = read?;
        let engines = self
            .args
            .engines(&plan)
            .map_err(|(key, failure)| vec![ConfigError::new(key, failure.message())])?;
        Ok(LoadedFile { plan, engines })
    }

    /// The plan, and the files that contain its secrets.
    fn read_plan(&self, contents: &Contents) -> (Result<Plan, Vec<ConfigError>>, Vec<PathBuf>) {
        let Some(path) = &self.file else {
            return (Ok(Plan::without_file()), Vec::new());
        };
        let name = path.display().to_string();
        let error = match contents.get(path) {
            Some(Ok(content)) => return Plan::parse_and_list(&name, &content.bytes),
            Some(Err(error)) => error.as_str(),
            None => "it was not checked",
        };
        let message = format!("{name} cannot be read: {error}");
        (Err(vec![ConfigError::new("", message)]), Vec::new())
    }

    /// Updates the running tunnels to match the file and the containers.
    fn apply(&mut self, retry_rejected: bool) -> Result<AppliedChanges, Failure> {
        let mut desired = self.loaded.plan.tunnels.clone();
        if let Some(docker) = &mut self.docker {
            for (key, tunnel) in docker.desired_tunnels() {
                match tunnel.check_engine_exists(&self.loaded.plan.engines) {
                    Ok(()) => {
                        desired.insert(key, tunnel);
                    }
                    Err(message) => output::message(&format!("error: {key}: {message}")),
                }
            }
        }
        let applied = self
            .agents
            .apply(&self.loaded.engines, &desired, retry_rejected)?;
        self.update_health();
        for key in &applied.removed {
            self.reporter.closed(key, &CloseReason::Asked)?;
        }
        Ok(applied)
    }

    fn containers_changed(&mut self) -> Result<(), Failure> {
        let applied = self.apply(false)?;
        if applied.is_empty() {
            Ok(())
        } else {
            self.reporter.applied(&applied)
        }
    }

    /// The process is ready while every tunnel is online. Probes see a change before it is
    /// reported.
    fn update_health(&self) {
        let states = [State::Pending, State::Reconnecting, State::Rejected];
        let others: usize = states.map(|state| self.agents.count(state)).iter().sum();
        let online = self.agents.count(State::Online);
        self.health.metrics().set_tunnels(online);
        self.health
            .set_ready(others == 0 && !self.shutdown.drain().is_cancelled());
    }

    /// Notifies the supervisor when the state has changed.
    fn notify_supervisor(&mut self, deadline_passed: bool) {
        let (online, pending) = (
            self.agents.count(State::Online),
            self.agents.count(State::Pending),
        );
        let (reconnecting, rejected) = (
            self.agents.count(State::Reconnecting),
            self.agents.count(State::Rejected),
        );
        if !self.ready_reported && (pending == 0 || deadline_passed) {
            self.ready_reported = true;
            self.supervisor.ready();
        }
        let total = online + pending + reconnecting + rejected;
        let refused = match rejected {
            0 => String::new(),
            count => format!(", {count} refused"),
        };
        let file = if self.rejected {
            "; the file is invalid, the previous configuration stays active"
        } else {
            ""
        };
        let status = format!("{online} of {total} tunnels online{refused}{file}");
        if status != self.last_status {
            self.supervisor.status(&status);
            self.last_status = status;
        }
    }

    /// Closes the agents. Accepted streams are served to their end and reported.
    async fn stop(
        &mut self,
        reports: &mut mpsc::Receiver<TunnelReport>,
        mut watchdog_ticks: Option<tokio::time::Interval>,
    ) -> Result<(), Failure> {
        self.supervisor.stopping();
        self.health.set_ready(false);
        let mut closing = self.agents.stop();
        loop {
            tokio::select! {
                closed = closing.join_next() => if closed.is_none() { break },
                Some(tunnel_report) = reports.recv() => self.handle_report(tunnel_report)?,
                () = supervisor::next_keepalive(watchdog_ticks.as_mut()) => self.supervisor.send_watchdog_beat(),
            }
        }
        while let Ok(tunnel_report) = reports.try_recv() {
            self.handle_report(tunnel_report)?;
        }
        Ok(())
    }
}

impl LoadedFile {
    fn empty() -> Self {
        Self {
            plan: Plan::without_file(),
            engines: BTreeMap::new(),
        }
    }
}

/// Checks a file without using it.
fn check(args: &Args, file: Option<&Path>) -> Result<(), Failure> {
    let mut plan = Plan::without_file();
    if let Some(path) = file {
        let name = path.display().to_string();
        let bytes = daemon::files::read_bounded(path, daemon::config::MAX_FILE_BYTES)
            .map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
        plan = Plan::parse(&name, &bytes).map_err(|errors| failure(errors, args.output))?;
    }
    // The file may be checked on another machine than the one that uses it. Missing engines or
    // tokens are therefore only warnings.
    if let Err((key, failure)) = args.engines(&plan) {
        let prefix = if key.is_empty() {
            String::new()
        } else {
            format!("{key}: ")
        };
        output::message(&format!("warning: {prefix}{}", failure.message()));
    }
    output::line("the configuration is valid")
}

/// Prints all errors but the last one, and returns the last as the failure.
fn failure(errors: Vec<ConfigError>, format: Format) -> Failure {
    print_all_but_last(errors, format, "`svc run --schema` describes every key")
}

/// Queued reports for the terminal: start and end of a thousand simultaneous visitors.
const REPORT_QUEUE_CAPACITY: usize = 2048;
/// The start does not fail if an engine is unreachable, for example while the machine boots. After
/// this time the process reports itself as ready; its status shows how many tunnels are online.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
