//! `cargo xtask bench`: the engine and the agent beside anchors and peers.
//!
//! The programs of this tree are built here, others are found or installed; then `bench/bench.py`
//! measures and reports.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::program;
use crate::repository::Repository;

/// Page that contains the report, in addition to `bench/results`.
const PAGE: &str = "docs/performance.md";

pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    let Some(options) = BenchArgs::of(args)? else {
        eprint!("{USAGE}");
        return Ok(());
    };
    let target = repository.target_directory()?;
    let environment = options
        .environment
        .unwrap_or_else(|| target.join("bench-env"));
    let python = program::find("python3").context("the bench needs Python 3.11 or newer")?;
    if options.install {
        program::run(
            Command::new(&python)
                .arg(repository.path("bench/install.py"))
                .arg(&environment),
        )?;
    }
    let built = target.join(&options.profile);
    let mut bench = Command::new(&python);
    bench
        .arg(repository.path("bench/bench.py"))
        .env("BENCH_PATH", search_path(&built, &environment)?)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    match options.task {
        Task::Run => {
            build(repository, &options.profile)?;
            bench.args(["run", "--profile", &options.profile]);
        }
        Task::List => {
            bench.arg("list");
        }
        Task::Report => {
            bench.args(["report", "--docs"]).arg(repository.path(PAGE));
        }
    }
    program::run(bench.args(&options.passed))
}

/// Builds the release `svc` alone first; then the tools for the bench, which may enable features of
/// shared crates.
fn build(repository: &Repository, profile: &str) -> Result<()> {
    let cargo = |packages: &[&str]| {
        let mut cargo = program::cargo();
        cargo
            .current_dir(repository.root())
            .args(["build", "--locked", "--profile", profile])
            .args(packages);
        program::run(&mut cargo)
    };
    cargo(&["-p", "svc"])?;
    cargo(&["-p", "bench-tools", "--bins"])?;
    cargo(&["-p", "svc-client", "--examples"])
}

/// Built programs first, then those installed for the bench, then those of the system.
fn search_path(built: &Path, environment: &Path) -> Result<String> {
    let directories = [
        built.to_path_buf(),
        built.join("examples"),
        environment.join("bin"),
    ];
    env::join_paths(directories)?
        .into_string()
        .ok()
        .context("the target directory's path is not UTF-8")
}

#[derive(Debug, PartialEq)]
enum Task {
    Run,
    List,
    Report,
}

/// The command line of the task.
#[derive(Debug, PartialEq)]
struct BenchArgs {
    task: Task,
    install: bool,
    profile: String,
    environment: Option<PathBuf>,
    /// Arguments for `bench.py`.
    passed: Vec<String>,
}

impl BenchArgs {
    /// `None` requests the usage.
    fn of(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            task: Task::Run,
            install: false,
            profile: "release".to_owned(),
            environment: None,
            passed: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || {
                args.next()
                    .with_context(|| format!("`{arg}` needs a value"))
            };
            match arg.as_str() {
                "--help" | "-h" => return Ok(None),
                "--install" => options.install = true,
                "--list" => options.task = Task::List,
                "--report" => options.task = Task::Report,
                "--profile" => {
                    let profile = value()?;
                    ensure!(
                        ["release", "dist", "profiling"].contains(&profile.as_str()),
                        "a bench is of `release`, `dist` or `profiling`, not of `{profile}`"
                    );
                    options.profile.clone_from(profile);
                }
                "--env" => options.environment = Some(value()?.into()),
                "--quick" | "--more" => options.passed.push(arg.clone()),
                "--rounds" | "--only" | "--work" | "--secs" | "--mib" | "--quiet"
                | "--max-foreign" | "--out" => {
                    options.passed.extend([arg.clone(), value()?.clone()]);
                }
                other => bail!("unexpected `{other}`\n\n{USAGE}"),
            }
        }
        Ok(Some(options))
    }
}

const USAGE: &str = "\
Usage: cargo xtask bench [options]

  --quick              a look: fewer contenders, one round, three distances
  --rounds N           interleaved rounds (3)
  --only A,B           these contenders
  --work A,B           these workloads
  --secs S, --mib N    the length of a load, the size of a body
  --profile NAME       what is measured: release, dist, profiling
  --install            install the anchors and peers that are missing
  --env DIRECTORY      where they are installed (target/bench-env)
  --more               add to the results of the run before
  --quiet S            seconds to wait for quiet cores before each contender
  --max-foreign X      share of the machine that others may use in a run that counts
  --out DIRECTORY      where the results go (bench/results)
  --list               the contenders, and which are missing
  --report             write the tables into docs/performance.md
";

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Option<BenchArgs>> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        BenchArgs::of(&args)
    }

    #[test]
    fn other_options_are_passed_to_the_harness() {
        let asked = asked("--rounds 5 --profile dist --quick --only svc,nginx2 --install");
        let asked = asked.unwrap().unwrap();
        assert_eq!(
            (asked.task, asked.profile.as_str(), asked.install),
            (Task::Run, "dist", true)
        );
        assert_eq!(
            asked.passed,
            ["--rounds", "5", "--quick", "--only", "svc,nginx2"]
        );
    }

    #[test]
    fn debug_builds_and_unknown_options_are_refused() {
        assert!(asked("--profile dev").is_err());
        assert!(asked("--round 3").is_err());
        assert!(asked("--rounds").is_err());
        assert_eq!(asked("--help").unwrap(), None);
    }
}
