//! Programs that the tests need: listed in one line, installed after consent.
//!
//! The tests run the program beside real third-party software: nginx as an upstream, curl as a
//! visitor, the Python SDK as an agent, PostgreSQL as the platform's database, Chromium as a user's
//! browser, GNOME's keyring, coturn's client of TURN relays, nghttp2's and slowhttptest's programs
//! as visitors that check or attack, systemd's verifier of units, Prometheus' checker of metrics
//! and rules, asciinema as a player of recorded terminals, zsh and fish as shells that complete
//! command lines, OpenSSH's signer, tinyproxy and microsocks as proxies with names of their own,
//! BIND as a name server and its client dig, Knot's client kdig, and checkers and peers written in
//! Python and for Node. The tests of `cargo xtask deep` also compile generated clients with a JDK.
//! Installed programs are used as they are. The Python packages live in a virtual environment under
//! the target directory, the Node packages in a directory beside it, and so do a downloaded nginx,
//! named and promtool: their Debian packages would start services when they are installed, so they are
//! only unpacked there. The web terminal is downloaded and the dashboard built as well, so that the
//! tested program has them.
//! PostgreSQL's package is installed without its default cluster; the tests create their own, in
//! temporary directories. etcd, the store of a cluster of engines, is only unpacked as well. Pebble, a
//! certificate authority, and lego, another client of it, are built with Go, and so is `h2spec`, if
//! possible; otherwise its test reports that it did not run.

mod debian;
mod go;
mod managers;
mod node;
mod postgres;
mod python;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use anyhow::{Context as _, Result, bail};

use self::managers::{MANAGERS, Manager};
use crate::program;
use crate::repository::Repository;
use crate::test_set::TestSet;
use crate::web;

/// Paths of the programs that the tests run.
pub(crate) struct Provisions {
    nginx: PathBuf,
    curl: PathBuf,
    openssl: PathBuf,
    python: PathBuf,
    /// The directory of PostgreSQL's server programs.
    postgres: PathBuf,
    node: PathBuf,
    /// The directory that holds `node_modules`.
    node_packages: PathBuf,
    chromium: PathBuf,
    /// coturn's `turnutils_uclient`.
    uclient: PathBuf,
    /// A message bus and the keyring on it; macOS has a keychain, which no test writes to.
    keyring: Option<[PathBuf; 2]>,
    nghttp: PathBuf,
    h2load: PathBuf,
    nghttpd: PathBuf,
    slowhttptest: PathBuf,
    /// systemd's verifier of units; only Linux has it.
    systemd_analyze: Option<PathBuf>,
    promtool: PathBuf,
    /// A player of recorded terminals.
    asciinema: PathBuf,
    zsh: PathBuf,
    fish: PathBuf,
    /// An HTTP proxy and a SOCKS proxy; only Linux has the library that gives them names.
    proxies: Option<[PathBuf; 2]>,
    /// BIND's server, and its client.
    named: PathBuf,
    dig: PathBuf,
    /// The client of another name server, Knot.
    kdig: PathBuf,
    /// The store of a cluster of engines.
    etcd: PathBuf,
    /// Builds Pebble, lego and h2spec.
    go: Option<PathBuf>,
    /// A certificate authority for tests, on listeners that it reports.
    pebble: PathBuf,
    /// Another client of certificate authorities, for a comparison.
    lego: PathBuf,
    /// The compiler of a JDK, for the tests of [`TestSet::Deep`]; its `java` is beside it.
    javac: Option<PathBuf>,
    /// The only optional program: it needs Go, and not every Go can build it.
    h2spec: Option<PathBuf>,
}

impl Provisions {
    /// Environment variables that the tests read.
    pub(crate) fn environment(&self) -> Vec<(&'static str, &Path)> {
        let mut environment: Vec<(&'static str, &Path)> = vec![
            ("SVC_TEST_NGINX", &self.nginx),
            ("SVC_TEST_CURL", &self.curl),
            ("SVC_TEST_OPENSSL", &self.openssl),
            ("SVC_TEST_PYTHON", &self.python),
            ("SVC_TEST_PG_BIN", &self.postgres),
            ("SVC_TEST_NODE", &self.node),
            ("SVC_TEST_NODE_PACKAGES", &self.node_packages),
            ("SVC_TEST_CHROMIUM", &self.chromium),
            ("SVC_TEST_UCLIENT", &self.uclient),
            ("SVC_TEST_NGHTTP", &self.nghttp),
            ("SVC_TEST_H2LOAD", &self.h2load),
            ("SVC_TEST_NGHTTPD", &self.nghttpd),
            ("SVC_TEST_SLOWHTTPTEST", &self.slowhttptest),
            ("SVC_TEST_PROMTOOL", &self.promtool),
            ("SVC_TEST_ASCIINEMA", &self.asciinema),
            ("SVC_TEST_ZSH", &self.zsh),
            ("SVC_TEST_FISH", &self.fish),
            ("SVC_TEST_NAMED", &self.named),
            ("SVC_TEST_DIG", &self.dig),
            ("SVC_TEST_KDIG", &self.kdig),
            ("SVC_TEST_ETCD", &self.etcd),
            ("SVC_TEST_PEBBLE", &self.pebble),
            ("SVC_TEST_LEGO", &self.lego),
        ];
        if let Some([tinyproxy, microsocks]) = &self.proxies {
            environment.extend([
                ("SVC_TEST_TINYPROXY", tinyproxy.as_path()),
                ("SVC_TEST_MICROSOCKS", microsocks),
            ]);
        }
        if let Some(analyze) = &self.systemd_analyze {
            environment.push(("SVC_TEST_SYSTEMD_ANALYZE", analyze));
        }
        for (name, program) in [
            ("SVC_TEST_H2SPEC", &self.h2spec),
            ("SVC_TEST_GO", &self.go),
            ("SVC_TEST_JAVAC", &self.javac),
        ] {
            environment.extend(program.as_deref().map(|path| (name, path)));
        }
        if let Some([bus, keyring]) = &self.keyring {
            environment.extend([
                ("SVC_TEST_DBUS", bus.as_path()),
                ("SVC_TEST_KEYRING", keyring),
            ]);
        }
        environment
    }
}

/// Checks or installs everything that the tests of a set need, and returns the paths.
pub(crate) fn run(repository: &Repository, set: TestSet, yes: bool) -> Result<Provisions> {
    let directory = repository.target_directory()?.join("test-env");
    let missing: Vec<Requirement> = Requirement::ALL
        .into_iter()
        .filter(|need| need.is_for(set) && !need.is_met(&directory))
        .collect();
    if !missing.is_empty() {
        install(&missing, &directory, yes)?;
        if let Some(need) = missing.into_iter().find(|need| !need.is_met(&directory)) {
            bail!("{need:?} is still missing after the installation");
        }
    }
    let python = python::environment(repository, &directory.join("python"))?;
    let node_packages = node::packages(repository, &directory.join("node"))?;
    web::run(repository)?;
    let provisions = Provisions {
        nginx: debian::nginx(&directory).context("nginx is gone")?,
        curl: program::find("curl").context("curl is gone")?,
        openssl: program::find("openssl").context("openssl is gone")?,
        python,
        postgres: postgres::programs().context("PostgreSQL is gone")?,
        node: program::find("node").context("Node is gone")?,
        node_packages,
        chromium: chromium().context("Chromium is gone")?,
        uclient: program::find(UCLIENT).context("coturn's client is gone")?,
        keyring: keyring(),
        nghttp: program::find("nghttp").context("nghttp is gone")?,
        h2load: program::find("h2load").context("h2load is gone")?,
        nghttpd: program::find("nghttpd").context("nghttpd is gone")?,
        slowhttptest: program::find("slowhttptest").context("slowhttptest is gone")?,
        systemd_analyze: program::find(ANALYZE),
        promtool: debian::promtool(&directory).context("promtool is gone")?,
        asciinema: program::find("asciinema").context("asciinema is gone")?,
        zsh: program::find("zsh").context("zsh is gone")?,
        fish: program::find("fish").context("fish is gone")?,
        proxies: proxies(),
        named: debian::named(&directory).context("named is gone")?,
        dig: program::find("dig").context("dig is gone")?,
        kdig: program::find("kdig").context("kdig is gone")?,
        etcd: debian::etcd(&directory).context("etcd is gone")?,
        go: go::compiler(),
        pebble: go::pebble(repository, &directory)?,
        lego: go::lego(repository, &directory)?,
        javac: program::find("javac"),
        h2spec: go::h2spec(repository, &directory.join("go")),
    };
    for (name, path) in provisions.environment() {
        eprintln!("    {name}={}", path.display());
    }
    Ok(provisions)
}

/// Installs npm with Node after consent, if it is missing. It builds the dashboard.
pub(crate) fn npm(repository: &Repository) -> Result<()> {
    if program::find("npm").is_some() {
        return Ok(());
    }
    let directory = repository.target_directory()?.join("test-env");
    install(&[Requirement::Node], &directory, false)
}

/// coturn's client of TURN relays.
const UCLIENT: &str = "turnutils_uclient";

/// systemd's verifier of units.
const ANALYZE: &str = "systemd-analyze";

/// Chromium under its names on different systems. The headless build needs half of the time.
fn chromium() -> Option<PathBuf> {
    let names = [
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    ];
    names.into_iter().find_map(program::find)
}

/// The message bus of a desktop's session, and the keyring that it starts.
fn keyring() -> Option<[PathBuf; 2]> {
    let bus = program::find("dbus-daemon")?;
    Some([bus, program::find("gnome-keyring-daemon")?])
}

/// The proxies, if they can have names of their own.
fn proxies() -> Option<[PathBuf; 2]> {
    let found = [program::find("tinyproxy")?, program::find("microsocks")?];
    can_preload("libnss_wrapper.so").then_some(found)
}

/// True if the dynamic linker finds the library. Without it, programs start nevertheless, with a
/// warning.
fn can_preload(library: &str) -> bool {
    let output = Command::new("true").env("LD_PRELOAD", library).output();
    output.is_ok_and(|output| output.status.success() && output.stderr.is_empty())
}

/// One requirement of the tests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Requirement {
    /// Compiles the C of aws-lc.
    CCompiler,
    Curl,
    /// Creates the certificates of visitors.
    Openssl,
    Nginx,
    /// Python 3 with support for virtual environments.
    Python,
    /// PostgreSQL's server, not running.
    Postgres,
    /// Node with npm.
    Node,
    Chromium,
    /// A desktop keyring, and a bus to reach it.
    Keyring,
    /// coturn, for its client; its server is not started.
    Coturn,
    /// nghttp, h2load and nghttpd.
    Nghttp2,
    Slowhttptest,
    /// systemd's programs. The slow tests start it as the first process of a machine of its own.
    Systemd,
    /// Prometheus, for its `promtool`.
    Prometheus,
    /// The player and recorder of terminals; only the player is used.
    Asciinema,
    /// zsh and fish; bash is installed everywhere.
    Shells,
    /// OpenSSH's `ssh-keygen`, which signs packages.
    Signer,
    /// An HTTP proxy, a SOCKS proxy, and a library that gives them names of this machine. Only
    /// Linux has the library.
    Proxies,
    /// BIND: its server, which is not started, and dig. Also Knot's kdig.
    Bind,
    /// The server of etcd, not running.
    Etcd,
    /// Builds Pebble, and compiles generated clients.
    Go,
    /// Runs a generator of clients, and compiles its output.
    Jdk,
}

impl Requirement {
    const ALL: [Self; 22] = [
        Self::CCompiler,
        Self::Curl,
        Self::Openssl,
        Self::Nginx,
        Self::Python,
        Self::Postgres,
        Self::Node,
        Self::Chromium,
        Self::Keyring,
        Self::Coturn,
        Self::Nghttp2,
        Self::Slowhttptest,
        Self::Systemd,
        Self::Prometheus,
        Self::Asciinema,
        Self::Shells,
        Self::Signer,
        Self::Proxies,
        Self::Bind,
        Self::Etcd,
        Self::Go,
        Self::Jdk,
    ];

    /// True if tests of the set need it.
    fn is_for(self, set: TestSet) -> bool {
        set == TestSet::Deep || self != Self::Jdk
    }

    fn is_met(self, directory: &Path) -> bool {
        match self {
            Self::CCompiler => program::find("cc").is_some(),
            Self::Curl => program::find("curl").is_some(),
            Self::Openssl => program::find("openssl").is_some(),
            Self::Nginx => debian::nginx(directory).is_some(),
            Self::Postgres => postgres::programs().is_some(),
            Self::Node => node::is_met(),
            Self::Chromium => chromium().is_some(),
            Self::Keyring => cfg!(target_os = "macos") || keyring().is_some(),
            Self::Coturn => program::find(UCLIENT).is_some(),
            Self::Nghttp2 => ["nghttp", "h2load", "nghttpd"]
                .into_iter()
                .all(|name| program::find(name).is_some()),
            Self::Slowhttptest => program::find("slowhttptest").is_some(),
            // Alpine has no package for it, and macOS has another init system.
            Self::Systemd => [ANALYZE, "apk", "brew"]
                .into_iter()
                .any(|name| program::find(name).is_some()),
            Self::Prometheus => debian::promtool(directory).is_some(),
            Self::Asciinema => program::find("asciinema").is_some(),
            Self::Shells => ["zsh", "fish"]
                .into_iter()
                .all(|name| program::find(name).is_some()),
            Self::Signer => program::find("ssh-keygen").is_some(),
            Self::Proxies => cfg!(target_os = "macos") || proxies().is_some(),
            Self::Bind => {
                let mut clients = ["dig", "kdig"].into_iter();
                debian::named(directory).is_some()
                    && clients.all(|name| program::find(name).is_some())
            }
            Self::Etcd => debian::etcd(directory).is_some(),
            Self::Go => go::compiler().is_some(),
            Self::Jdk => ["java", "javac"]
                .into_iter()
                .all(|name| program::find(name).is_some()),
            Self::Python => {
                program::succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"]))
            }
        }
    }

    /// The packages of one package manager for this requirement.
    fn packages(self, manager: &Manager) -> &'static str {
        let [
            c_compiler,
            curl,
            openssl,
            nginx,
            python,
            postgres,
            node,
            chromium,
            keyring,
            coturn,
            nghttp2,
            slowhttptest,
            systemd,
            prometheus,
            asciinema,
            shells,
            signer,
            proxies,
            bind,
            etcd,
            go,
            jdk,
        ] = manager.packages;
        match self {
            Self::CCompiler => c_compiler,
            Self::Curl => curl,
            Self::Openssl => openssl,
            Self::Nginx => nginx,
            Self::Python => python,
            Self::Postgres => postgres,
            Self::Node => node,
            Self::Chromium => chromium,
            Self::Keyring => keyring,
            Self::Coturn => coturn,
            Self::Nghttp2 => nghttp2,
            Self::Slowhttptest => slowhttptest,
            Self::Systemd => systemd,
            Self::Prometheus => prometheus,
            Self::Asciinema => asciinema,
            Self::Shells => shells,
            Self::Signer => signer,
            Self::Proxies => proxies,
            Self::Bind => bind,
            Self::Etcd => etcd,
            Self::Go => go,
            Self::Jdk => jdk,
        }
    }
}

fn install(missing: &[Requirement], directory: &Path, yes: bool) -> Result<()> {
    let Some(manager) = MANAGERS
        .iter()
        .find(|manager| program::find(manager.program).is_some())
    else {
        bail!("missing: {missing:?}; install them and try again");
    };
    let line = line(manager, missing, debian::is_root());
    eprintln!("    missing; on this system: {line}");
    if manager.program != "apt-get" {
        bail!("install what is missing and try again: {line}");
    }
    let ci = env::var("CI").is_ok_and(|value| !["", "0", "false"].contains(&value.as_str()));
    match Consent::of(yes || ci, io::stdin().is_terminal()) {
        Consent::Given => {}
        Consent::Ask => ask()?,
        Consent::Impossible => bail!("nobody is here to ask: pass --yes, or run: {line}"),
    }
    debian::install(missing, manager, directory)
}

/// The line that the user should run.
fn line(manager: &Manager, missing: &[Requirement], is_root: bool) -> String {
    let packages: Vec<_> = missing.iter().map(|need| need.packages(manager)).collect();
    let sudo = if is_root || manager.program == "brew" {
        ""
    } else {
        "sudo "
    };
    format!("{sudo}{} {}", manager.install, packages.join(" "))
}

#[derive(Debug, PartialEq)]
enum Consent {
    Given,
    Ask,
    Impossible,
}

impl Consent {
    fn of(given: bool, terminal: bool) -> Self {
        match (given, terminal) {
            (true, _) => Self::Given,
            (false, true) => Self::Ask,
            (false, false) => Self::Impossible,
        }
    }
}

fn ask() -> Result<()> {
    eprint!(
        "    Install it now (no service is started; nginx, named, promtool and etcd are only unpacked)? \
         [y/N] "
    );
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("not installed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_missing_is_one_line_for_the_package_manager() {
        let [apt, ..] = &MANAGERS;
        assert_eq!(
            line(apt, &[Requirement::Nginx, Requirement::Python], false),
            "sudo apt-get install --no-install-recommends nginx-light python3 python3-venv"
        );
        assert_eq!(
            line(apt, &[Requirement::Curl], true),
            "apt-get install --no-install-recommends curl"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_missing_library_is_noticed() {
        assert!(can_preload(""));
        assert!(!can_preload("libsvc_no_such_library.so"));
    }

    #[test]
    fn only_the_slow_tests_need_a_jdk() {
        let needs = |set| {
            Requirement::ALL
                .into_iter()
                .filter(move |need| need.is_for(set))
        };
        assert_eq!(needs(TestSet::Deep).count(), Requirement::ALL.len());
        let all = needs(TestSet::Deep);
        let only_deep: Vec<_> = all.filter(|need| !need.is_for(TestSet::Change)).collect();
        assert_eq!(only_deep, [Requirement::Jdk]);
    }

    #[test]
    fn nothing_is_installed_without_consent() {
        assert_eq!(Consent::of(false, true), Consent::Ask);
        assert_eq!(Consent::of(false, false), Consent::Impossible);
        assert_eq!(Consent::of(true, false), Consent::Given);
    }
}
