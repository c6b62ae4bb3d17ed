//! `cargo xtask soak`: repeats every test in shuffled order on a busy machine.
//!
//! A test that fails here has a race, in itself or in the product. The passes of each test are
//! counted in `tests/soak.txt` ([`record`]), so that the task can be interrupted and continued: a
//! test needs [`record::ENOUGH`] passes since its source last changed.

mod busy;
mod outcomes;
mod record;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use self::busy::BusyLoops;
use self::outcomes::Outcome;
use self::record::Record;
use crate::programs::{self, Program};
use crate::provision;
use crate::repository::Repository;
use crate::test_set::TestSet;

/// Runs rounds of all test programs whose tests have too few passes.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let provisions = provision::run(repository, TestSet::Change, options.yes)?;
    let programs = programs::build(repository, TestSet::Change)?;
    let mut record = Record::read(repository)?;
    let busy = options.load.then(BusyLoops::start);
    let mut report = Report::default();
    for round in 1..=options.rounds {
        let chosen: Vec<&Program> = programs
            .iter()
            .filter(|program| options.is_chosen(program))
            .filter(|program| options.all || !record.is_enough(repository, program))
            .collect();
        if chosen.is_empty() {
            eprintln!("every test has passed {} times", record::ENOUGH);
            break;
        }
        let seed = options
            .seed
            .unwrap_or_else(seed)
            .wrapping_add(u64::from(round));
        eprintln!("\nround {round} of {}, seed {seed}", options.rounds);
        for program in shuffled(chosen, seed) {
            let outcomes = outcomes::run(program, repository, &provisions, seed)?;
            report.add(program, &outcomes);
            // Passes without load prove nothing, but failures count.
            record.add(repository, program, &outcomes, busy.is_some())?;
        }
    }
    drop(busy);
    report.print();
    match report.failures {
        0 => Ok(()),
        failures => bail!("{failures} failures"),
    }
}

/// The command line.
struct Options {
    rounds: u32,
    load: bool,
    /// Includes programs whose tests have enough passes.
    all: bool,
    seed: Option<u64>,
    yes: bool,
    /// Packages; empty for all.
    packages: Vec<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self {
            rounds: 1,
            load: false,
            all: false,
            seed: None,
            yes: false,
            packages: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} takes a value"));
            match arg.as_str() {
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--seed" => options.seed = Some(value()?.parse().context("--seed")?),
                "--load" => options.load = true,
                "--all" => options.all = true,
                "--yes" => options.yes = true,
                flag if flag.starts_with('-') => bail!("unknown option `{flag}`"),
                package => options.packages.push(package.to_owned()),
            }
        }
        Ok(options)
    }

    fn is_chosen(&self, program: &Program) -> bool {
        self.packages.is_empty() || self.packages.contains(&program.package)
    }
}

/// Failures as they occur, and the slowest tests at the end.
#[derive(Default)]
struct Report {
    failures: usize,
    /// The longest time of each test.
    times: BTreeMap<String, Duration>,
}

/// Number of slow tests in the report.
const SLOWEST: usize = 20;

impl Report {
    fn add(&mut self, program: &Program, outcomes: &[Outcome]) {
        let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
        self.failures += failed;
        eprintln!(
            "{program}: {} passed, {failed} failed",
            outcomes.len() - failed
        );
        for outcome in outcomes {
            if !outcome.passed {
                eprintln!(
                    "\n---- {program} {}\n{}",
                    outcome.test,
                    outcome.log.trim_end()
                );
            }
            let name = format!("{program} {}", outcome.test);
            let longest = self.times.entry(name).or_default();
            *longest = outcome.time.max(*longest);
        }
    }

    fn print(&self) {
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
        eprintln!("\nthe slowest tests:");
        for (name, time) in times.into_iter().take(SLOWEST) {
            eprintln!("{:8.1} s  {name}", time.as_secs_f32());
        }
    }
}

/// A seed that no earlier run had.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Shuffled with a seed (Fisher and Yates, with the numbers of `SplitMix64`).
fn shuffled<T>(mut items: Vec<T>, seed: u64) -> Vec<T> {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let chosen = (mixed ^ (mixed >> 31)) % (last as u64 + 1);
        items.swap(last, usize::try_from(chosen).unwrap_or(last));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_item_and_depends_on_the_seed() {
        let items: Vec<u32> = (0..20).collect();
        let one = shuffled(items.clone(), 1);
        assert_eq!(one, shuffled(items.clone(), 1));
        assert_ne!(one, shuffled(items.clone(), 2));
        let mut sorted = one;
        sorted.sort_unstable();
        assert_eq!(sorted, items);
    }

    #[test]
    fn options_are_read_and_unknown_ones_are_named() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = Options::parse(&words("--rounds 3 --load engine")).unwrap();
        assert_eq!((options.rounds, options.load), (3, true));
        assert_eq!(options.packages, ["engine"]);
        let error = Options::parse(&words("--laod")).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "unknown option `--laod`");
    }
}
