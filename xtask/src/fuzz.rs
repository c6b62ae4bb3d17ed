//! `cargo xtask fuzz`: runs every target of `fuzz/` for some seconds, guided by coverage if the
//! machine has cargo-fuzz and nightly Rust. Otherwise only the stored inputs are replayed, and the
//! targets that were not fuzzed are named.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::program;
use crate::repository::Repository;

/// Runs all targets, or the named ones.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    let (seconds, named) = arguments(args)?;
    let all = targets(repository)?;
    if let Some(name) = named
        .iter()
        .find(|name| !all.iter().any(|t| &t.name == *name))
    {
        bail!("there is no target `{name}`");
    }
    let chosen: Vec<&Target> = all
        .iter()
        .filter(|target| named.is_empty() || named.contains(&target.name))
        .collect();
    replay(repository, &chosen)?;
    run_guided(repository, &chosen, &Mode::Search { seconds })
}

/// The check for each change: only the guided run, because the tests replay the stored inputs.
pub(crate) fn briefly(repository: &Repository) -> Result<()> {
    let all = targets(repository)?;
    run_guided(repository, &all.iter().collect::<Vec<_>>(), &Mode::Gate)
}

/// Mode of a run.
enum Mode {
    /// Random, for this time, starting from earlier findings: this mode finds new bugs.
    Search { seconds: u32 },
    /// The same inputs in the same order each time, so that the result depends only on the change.
    Gate,
}

/// A target, and the crate whose parser it tests.
struct Target {
    name: String,
    krate: String,
}

/// Every target, sorted: the files in `fuzz/fuzz_targets`, each with the crate that its file names.
fn targets(repository: &Repository) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(repository.path("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path)?;
        let krate = text
            .split_once("crates/")
            .and_then(|(_, rest)| rest.split_once('/'))
            .with_context(|| format!("{} names no crate", path.display()))?
            .0;
        targets.push(Target {
            name: name.into_owned(),
            krate: krate.to_owned(),
        });
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}

impl Target {
    /// The inputs that are stored with the sources.
    fn corpus(&self, repository: &Repository) -> PathBuf {
        repository.path(&format!("crates/{}/tests/corpus/{}", self.krate, self.name))
    }
}

/// Replays the stored inputs in the tests of each crate, with the usual Rust.
fn replay(repository: &Repository, targets: &[&Target]) -> Result<()> {
    let mut crates: Vec<&str> = targets.iter().map(|target| &*target.krate).collect();
    crates.sort_unstable();
    crates.dedup();
    let mut cargo = program::cargo();
    cargo
        .current_dir(repository.root())
        .args(["test", "--locked"]);
    for krate in crates {
        cargo.args(["-p", krate]);
    }
    program::run(cargo.args(["--test", "it", "--"]).args(REPLAYS))
}

fn run_guided(repository: &Repository, targets: &[&Target], mode: &Mode) -> Result<()> {
    if !program::succeeds(cargo_fuzz().arg("--version")) {
        let names: Vec<&str> = targets.iter().map(|target| &*target.name).collect();
        eprintln!(
            "not run, because cargo-fuzz with nightly Rust is not here: the coverage-guided part \
             of {}\n(rustup toolchain install nightly; cargo install cargo-fuzz --locked)",
            names.join(", ")
        );
        return Ok(());
    }
    let build = repository.target_directory()?.join("fuzz");
    for target in targets {
        let failing = build.join("artifacts").join(&target.name);
        let (found, bounds) = match mode {
            Mode::Search { seconds } => (
                build.join("corpus").join(&target.name),
                vec![format!("-max_total_time={seconds}")],
            ),
            Mode::Gate => {
                let found = build.join("gate").join(&target.name);
                if found.exists() {
                    fs::remove_dir_all(&found)?;
                }
                let bounds = vec![
                    "-seed=1".to_owned(),
                    format!("-runs={GATE_RUNS}"),
                    format!("-max_total_time={GATE_SECONDS}"),
                ];
                (found, bounds)
            }
        };
        fs::create_dir_all(&found)?;
        fs::create_dir_all(&failing)?;
        let mut fuzz = cargo_fuzz();
        // Without a sanitizer: the fuzzed code has no unsafe code, and runs at twice the speed.
        fuzz.current_dir(repository.root())
            .env("CARGO_TARGET_DIR", &build)
            .args(["run", "--sanitizer", "none", &target.name])
            .args([&found, &target.corpus(repository)])
            .arg("--")
            .args(bounds)
            .arg(format!("-max_len={MAX_INPUT_BYTES}"))
            .arg(format!("-timeout={SLOWEST_SECONDS}"))
            .arg(format!("-artifact_prefix={}/", failing.display()))
            .args(["-print_final_stats=1", "-verbosity=0"]);
        eprintln!("\n{} ({})", target.name, target.krate);
        program::run(&mut fuzz).with_context(|| {
            format!(
                "`{}` found something; the input is in {}",
                target.name,
                failing.display()
            )
        })?;
    }
    Ok(())
}

fn cargo_fuzz() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]);
    command
}

/// `--seconds N`, and names of targets.
fn arguments(args: &[String]) -> Result<(u32, Vec<String>)> {
    let mut seconds = DEFAULT_SECONDS;
    let mut named = Vec::new();
    let mut rest = args.iter();
    while let Some(argument) = rest.next() {
        if argument == "--seconds" {
            let number = rest.next().and_then(|number| number.parse().ok());
            seconds = number
                .filter(|seconds| *seconds > 0)
                .context("--seconds takes a number above zero")?;
        } else if argument.starts_with('-') {
            bail!(
                "unexpected `{argument}`; only `--seconds N` and names of targets are known here"
            );
        } else {
            named.push(argument.clone());
        }
    }
    Ok((seconds, named))
}

/// Filters that select only the tests that replay inputs. Other tests may have requirements that
/// are missing on this machine, such as a database.
const REPLAYS: [&str; 2] = ["corpus::", "kept_inputs_"];

/// Default time per target: a run of all takes less than an hour.
const DEFAULT_SECONDS: u32 = 120;

/// Inputs per target in a run for a change: enough to detect a broken parser, in two minutes.
const GATE_RUNS: u32 = 20_000;

/// Time limit for the slowest targets, which then stop earlier in the same sequence of inputs.
const GATE_SECONDS: u32 = 5;

/// Every relevant limit of a parser is below this size.
const MAX_INPUT_BYTES: u32 = 4096;

/// An input that takes longer is a finding.
const SLOWEST_SECONDS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_has_a_corpus_and_is_replayed() {
        let repository = Repository::of_this_package().unwrap();
        let manifest = repository.read("fuzz/Cargo.toml").unwrap();
        let targets = targets(&repository).unwrap();
        assert!(targets.len() >= 20);
        for target in targets {
            let name = &target.name;
            assert!(
                manifest.contains(&format!("name = \"{name}\"")),
                "{name} is not built"
            );
            let kept = fs::read_dir(target.corpus(&repository)).map(Iterator::count);
            let kept = kept.unwrap_or_else(|error| panic!("{name} has no corpus: {error}"));
            assert!((1..=48).contains(&kept), "{name} has {kept} inputs");
            let tests = repository.path(&format!("crates/{}/tests/it", target.krate));
            let replayed = fs::read_dir(tests).unwrap().any(|file| {
                let path = file.unwrap().path();
                let text = fs::read_to_string(&path).unwrap_or_default();
                let is_run = path.ends_with("corpus.rs") || text.contains("fn kept_inputs_");
                is_run && text.contains("replay") && text.contains(&**name)
            });
            assert!(replayed, "no test replays {name}");
        }
    }

    #[test]
    fn arguments_are_seconds_and_names() {
        let of = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| String::from(*arg)).collect();
            arguments(&args).ok()
        };
        assert_eq!(of(&[]), Some((DEFAULT_SECONDS, Vec::new())));
        assert_eq!(
            of(&["path", "--seconds", "7"]),
            Some((7, vec!["path".to_owned()]))
        );
        for bad in [
            &["--seconds"][..],
            &["--seconds", "0"],
            &["--seconds", "x"],
            &["--all"],
        ] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
