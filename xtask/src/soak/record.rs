//! `tests/soak.txt`: number of passes under load of the tests of each source file since the file
//! last changed.
//!
//! One line for each file, `path digest passes`, sorted, so that changes merge line by line. The
//! number of a file is the lowest of its tests: a failure of any test resets it to zero.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::outcomes::Outcome;
use crate::programs::Program;
use crate::repository::Repository;

/// Passes after which a test counts as free of races.
pub(super) const ENOUGH: u32 = 20;

const FILE: &str = "tests/soak.txt";

/// Passes by the source file of the tests, relative to the repository.
pub(super) struct Record {
    files: BTreeMap<String, Passes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passes {
    digest: u64,
    count: u32,
}

impl Record {
    pub(super) fn read(repository: &Repository) -> Result<Self> {
        let path = repository.path(FILE);
        let text = if path.exists() {
            repository.read(FILE)?
        } else {
            String::new()
        };
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut files = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().with_context(|| format!("{FILE}: `{line}`"));
            let (path, digest, count) = (word()?.to_owned(), word()?, word()?);
            let passes = Passes {
                digest: u64::from_str_radix(digest, 16).with_context(|| FILE.to_owned())?,
                count: count.parse().with_context(|| FILE.to_owned())?,
            };
            files.insert(path, passes);
        }
        Ok(Self { files })
    }

    fn text(&self) -> String {
        let line = |(path, passes): (&String, &Passes)| {
            format!("{path} {:016x} {}\n", passes.digest, passes.count)
        };
        self.files.iter().map(line).collect()
    }

    /// True if all tests of a program have enough passes.
    pub(super) fn is_enough(&self, repository: &Repository, program: &Program) -> bool {
        let Some(directory) = program.root.parent() else {
            return false;
        };
        files_with_tests(directory).iter().all(|file| {
            let relative = file.strip_prefix(repository.root()).unwrap_or(file);
            let passes = self.files.get(&*relative.to_string_lossy());
            let is_enough =
                |passes: &Passes| passes.count >= ENOUGH && digest_of(file) == Some(passes.digest);
            passes.is_some_and(is_enough)
        })
    }

    /// Counts a run of a program, and writes the file.
    pub(super) fn add(
        &mut self,
        repository: &Repository,
        program: &Program,
        outcomes: &[Outcome],
        is_under_load: bool,
    ) -> Result<()> {
        let mut passed = BTreeMap::new();
        for outcome in outcomes {
            let source = source_of(&program.root, &outcome.test);
            *passed.entry(source).or_insert(true) &= outcome.passed;
        }
        for (source, passed) in passed {
            let relative = source.strip_prefix(repository.root()).unwrap_or(&source);
            let Some(digest) = digest_of(&source) else {
                continue;
            };
            self.count(&relative.to_string_lossy(), digest, passed, is_under_load);
        }
        fs::write(repository.path(FILE), self.text()).context("cannot write the record")
    }

    fn count(&mut self, path: &str, digest: u64, passed: bool, is_under_load: bool) {
        let known = self.files.get(path).filter(|known| known.digest == digest);
        let count = match (passed, known) {
            (false, _) => 0,
            (true, known) => known.map_or(0, |known| known.count) + u32::from(is_under_load),
        };
        let passes = Passes { digest, count };
        self.files.insert(path.to_owned(), passes);
    }
}

/// The file of a test: the longest part of its module path that is a file below the directory of
/// the target's root.
fn source_of(root: &Path, test: &str) -> PathBuf {
    let Some(directory) = root.parent() else {
        return root.to_owned();
    };
    let modules: Vec<&str> = test.split("::").collect();
    for length in (1..modules.len()).rev() {
        let module = modules.iter().take(length).collect::<PathBuf>();
        for file in [module.with_extension("rs"), module.join("mod.rs")] {
            let candidate = directory.join(file);
            if candidate.is_file() {
                return candidate;
            }
        }
    }
    root.to_owned()
}

/// The source files below a directory that define tests.
fn files_with_tests(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(files_with_tests(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && fs::read_to_string(&path).is_ok_and(|text| text.lines().any(defines_test))
        {
            found.push(path);
        }
    }
    found
}

/// True if a line is the attribute of a test.
fn defines_test(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[test]") || line.starts_with("#[tokio::test")
}

fn digest_of(path: &Path) -> Option<u64> {
    Some(digest(&fs::read(path).ok()?))
}

/// FNV-1a: it only has to detect changes of a file.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_until_a_failure_or_a_change() {
        let mut record = Record::parse("a.rs 0000000000000001 7\n").unwrap();
        record.count("a.rs", 1, true, true);
        record.count("b.rs", 9, true, true);
        assert_eq!(
            record.text(),
            "a.rs 0000000000000001 8\nb.rs 0000000000000009 1\n"
        );
        record.count("a.rs", 1, true, false);
        assert!(record.text().starts_with("a.rs 0000000000000001 8\n"));
        record.count("a.rs", 2, true, true);
        assert!(record.text().starts_with("a.rs 0000000000000002 1\n"));
        record.count("a.rs", 2, false, false);
        assert!(record.text().starts_with("a.rs 0000000000000002 0\n"));
    }

    #[test]
    fn files_with_tests_are_found_and_others_are_not() {
        let found = files_with_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let has = |name: &str| found.iter().any(|path| path.ends_with(name));
        assert!(has("soak/record.rs") && has("soak.rs") && !has("soak/busy.rs"));
    }

    #[test]
    fn a_test_is_found_in_the_file_of_its_module() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs");
        let found = |test| {
            let path = source_of(&root, test);
            path.strip_prefix(root.parent().unwrap())
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            found("soak::record::tests::a_test"),
            Path::new("soak/record.rs")
        );
        assert_eq!(found("soak::tests::a_test"), Path::new("soak.rs"));
        assert_eq!(found("a_test"), Path::new("main.rs"));
    }
}
