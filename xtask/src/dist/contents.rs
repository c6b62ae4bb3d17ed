//! Contents of a package, and the location of each part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::stage::Entry;
use super::{Flavour, documents};
use crate::program;
use crate::repository::Repository;

/// The parts of a package, read once.
pub(super) struct Contents {
    pub(super) flavour: Flavour,
    parts: Vec<Part>,
}

/// A file: its kind, its name, its bytes.
struct Part {
    kind: Kind,
    name: String,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Program,
    Unit,
    Example,
    Users,
    Rotation,
    Manual,
    Completion,
    Document,
}

/// Location of each kind, below the root of a package.
pub(super) struct Layout {
    program: &'static str,
    units: &'static str,
    examples: Option<&'static str>,
    users: Option<&'static str>,
    rotation: &'static str,
    manuals: &'static str,
    /// The directory of completions, if they have one per shell.
    completions: Option<&'static str>,
    documents: Option<&'static str>,
}

/// One folder, to copy files from.
pub(super) const TARBALL: Layout = Layout {
    program: "",
    units: "systemd",
    examples: Some("etc"),
    users: None,
    rotation: "logrotate",
    manuals: "man",
    completions: Some("completions"),
    documents: Some(""),
};

/// The file system of Debian. Examples are with the documentation: a service only starts once its
/// configuration is written.
pub(super) const DEBIAN: Layout = Layout {
    program: "usr/bin",
    units: "usr/lib/systemd/system",
    examples: None,
    users: Some("usr/lib/sysusers.d"),
    rotation: "etc/logrotate.d",
    manuals: "usr/share/man/man1",
    completions: None,
    documents: None,
};

/// The shells with completions in packages, and their locations on Debian.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "svc", "usr/share/bash-completion/completions"),
    ("zsh", "_svc", "usr/share/zsh/vendor-completions"),
    ("fish", "svc.fish", "usr/share/fish/vendor_completions.d"),
];

/// The units of servers; all others are for agents.
const SERVERS: [&str; 4] = [
    "svc-engine.service",
    "svc-platform.service",
    "svc-turn.service",
    "svc-up.service",
];

impl Contents {
    pub(super) fn gather(
        repository: &Repository,
        flavour: Flavour,
        program: &Path,
    ) -> Result<Self> {
        let root = repository.root();
        let mut contents = Self {
            flavour,
            parts: Vec::new(),
        };
        contents.add(Kind::Program, "svc", fs::read(program)?);
        for unit in listed(&root.join("deploy/systemd"))? {
            let is_server = SERVERS.iter().any(|server| unit.ends_with(server));
            if flavour == Flavour::Complete || !is_server {
                contents.add_file(Kind::Unit, &unit)?;
            }
        }
        if flavour == Flavour::Complete {
            for file in listed(&root.join("deploy/etc"))? {
                contents.add_file(Kind::Example, &file)?;
            }
            let users = fs::read(root.join("deploy/debian/svc.sysusers"))?;
            contents.add(Kind::Users, "svc.conf", users);
            let rotation = fs::read(root.join("deploy/debian/svc.logrotate"))?;
            contents.add(Kind::Rotation, "svc", rotation);
        }
        for (path, content) in documents::gather(repository)? {
            contents.add(Kind::Document, &path.to_string_lossy(), content);
        }
        contents.add_generated(program)?;
        Ok(contents)
    }

    /// Adds the files that the program generates: manual pages and completions of shells.
    fn add_generated(&mut self, program: &Path) -> Result<()> {
        // A program with these commands must answer them, or the package is not built.
        if knows(program, "man") {
            let pages = program.with_extension("man");
            super::remove(&pages)?;
            program::run(Command::new(program).args(["man", "--dir"]).arg(&pages))?;
            for page in listed(&pages)? {
                self.add_file(Kind::Manual, &page)?;
            }
            super::remove(&pages)?;
        }
        if knows(program, "completions") {
            for (shell, name, _) in SHELLS {
                let script = program::output(Command::new(program).args(["completions", shell]))?;
                self.add(Kind::Completion, name, script.into_bytes());
            }
        }
        Ok(())
    }

    fn add_file(&mut self, kind: Kind, path: &Path) -> Result<()> {
        let name = path.file_name().context("a file has a name")?;
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.add(kind, &name.to_string_lossy(), bytes);
        Ok(())
    }

    /// Adds a page that is generated with the package.
    pub(super) fn add_document(&mut self, name: &str, text: String) {
        self.add(Kind::Document, name, text.into_bytes());
    }

    fn add(&mut self, kind: Kind, name: &str, bytes: Vec<u8>) {
        self.parts.push(Part {
            kind,
            name: name.to_owned(),
            bytes,
        });
    }

    /// The program's bytes.
    pub(super) fn program(&self) -> &[u8] {
        let program = self.parts.iter().find(|part| part.kind == Kind::Program);
        program.map_or(&[], |part| &part.bytes)
    }

    /// Every part at its location.
    pub(super) fn entries(&self, layout: &Layout) -> Vec<Entry> {
        let parts = self.parts.iter().filter_map(|part| {
            let path = self.place(part, layout)?.join(&part.name);
            let bytes = part.bytes.clone();
            Some(match part.kind {
                Kind::Program => Entry::executable(path, bytes),
                _ => Entry::new(path, bytes),
            })
        });
        parts.collect()
    }

    /// Debian's documentation folder of the package.
    pub(super) fn documents(&self) -> PathBuf {
        Path::new("usr/share/doc").join(self.flavour.package())
    }

    fn place(&self, part: &Part, layout: &Layout) -> Option<PathBuf> {
        Some(match part.kind {
            Kind::Program => layout.program.into(),
            Kind::Unit => layout.units.into(),
            Kind::Example => match layout.examples {
                Some(folder) => folder.into(),
                None => self.documents().join("examples"),
            },
            Kind::Users => layout.users?.into(),
            Kind::Rotation => layout.rotation.into(),
            Kind::Manual => layout.manuals.into(),
            Kind::Completion => {
                let shell = SHELLS.iter().find(|(_, name, _)| *name == part.name);
                let own = shell.map(|(_, _, folder)| *folder);
                layout.completions.or(own)?.into()
            }
            Kind::Document => match layout.documents {
                Some(folder) => folder.into(),
                None => self.documents(),
            },
        })
    }
}

/// True if the program has the command.
fn knows(program: &Path, command: &str) -> bool {
    program::succeeds(Command::new(program).args([command, "--help"]))
}

/// The files of a folder, sorted by name.
fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}
