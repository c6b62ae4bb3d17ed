//! Hostile clients, services and agents against the shipped program.
//!
//! Debug builds have assertions that release builds do not have, so the release program is attacked:
//! `cargo xtask attack` builds it and runs this with `SVC_BIN`. Each case tries one kind of attack
//! for its share of the time and then checks invariants: the service behind the tunnel received only
//! well-formed requests without forged headers, other visitors are served, memory and descriptors
//! stay within their limits. Nothing here uses a crate of the program.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task talks to the person who started it"
)]

mod cases;
mod connection;
mod http2;
mod oracle;
mod target;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::cases::CASES;
use crate::target::Target;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_failed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("attack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the selected cases and returns the number that failed.
fn run() -> Result<usize> {
    let options = Options::parse(std::env::args().skip(1))?;
    println!("seed {}, {} s", options.seed, options.budget.as_secs());
    let cases: Vec<_> = CASES
        .iter()
        .filter(|case| options.only.as_deref().is_none_or(|name| name == case.name))
        .collect();
    let shares: u32 = cases.iter().map(|case| case.share).sum();
    if cases.is_empty() {
        bail!("there is no such case");
    }
    let mut failed = 0;
    for case in &cases {
        let started = Instant::now();
        let mut random = fastrand::Rng::with_seed(options.seed);
        let budget = options.budget * case.share / shares;
        let result = Target::start().and_then(|mut target| {
            (case.run)(&mut target, budget, &mut random)?;
            target.check()
        });
        let seconds = started.elapsed().as_secs_f32();
        match result {
            Ok(()) => println!("ok      {} ({seconds:.1} s)", case.name),
            Err(error) => {
                failed += 1;
                println!("FAILED  {} ({seconds:.1} s): {error:#}", case.name);
            }
        }
    }
    println!("{} passed, {failed} failed", cases.len() - failed);
    Ok(failed)
}

/// The command line.
struct Options {
    /// Time for all cases together, without starting the program.
    budget: Duration,
    /// Seed of the pseudo-random choices; the same seed sends the same bytes.
    seed: u64,
    /// The only case to run.
    only: Option<String>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            budget: Duration::from_mins(1),
            seed: 1,
            only: None,
        };
        while let Some(arg) = args.next() {
            let mut value = || {
                args.next()
                    .with_context(|| format!("`{arg}` needs a value"))
            };
            match arg.as_str() {
                "--seconds" => options.budget = Duration::from_secs(value()?.parse()?),
                "--seed" => options.seed = value()?.parse()?,
                "--only" => options.only = Some(value()?),
                other => {
                    bail!("unexpected `{other}`; known are --seconds N, --seed N, --only CASE")
                }
            }
        }
        Ok(options)
    }
}
