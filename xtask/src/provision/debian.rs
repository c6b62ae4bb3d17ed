//! Installation on Debian and its derivatives, without leaving a service running.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Requirement, managers::Manager};
use crate::program;

/// Installs missing packages with apt-get; nginx, named, promtool and etcd are unpacked under `directory`
/// instead, and PostgreSQL is kept from creating a cluster.
pub(super) fn install(missing: &[Requirement], manager: &Manager, directory: &Path) -> Result<()> {
    twice(|| program::run(as_root("apt-get").arg("update")))?;

    let packages: Vec<_> = missing
        .iter()
        .filter(|need| {
            ![
                Requirement::Nginx,
                Requirement::Bind,
                Requirement::Prometheus,
                Requirement::Etcd,
                Requirement::Postgres,
            ]
            .contains(need)
        })
        .flat_map(|need| need.packages(manager).split(' '))
        .collect();
    // Its package starts the server; only its client is needed.
    if missing.contains(&Requirement::Coturn) && program::find("systemctl").is_some() {
        program::run(as_root("systemctl").args(["mask", "coturn.service"]))?;
    }
    if !packages.is_empty() {
        install_packages(&packages)?;
    }
    if missing.contains(&Requirement::Nginx) {
        unpack("nginx", directory)?;
    }
    if missing.contains(&Requirement::Bind) {
        // The package of its client has the libraries of the server.
        install_packages(&["bind9-dnsutils", "knot-dnsutils"])?;
        unpack("bind9", directory)?;
    }
    if missing.contains(&Requirement::Prometheus) {
        unpack("prometheus", directory)?;
    }
    if missing.contains(&Requirement::Etcd) {
        unpack("etcd-server", directory)?;
    }
    if missing.contains(&Requirement::Postgres) {
        install_postgres(Requirement::Postgres.packages(manager))?;
    }
    Ok(())
}

fn install_packages(packages: &[&str]) -> Result<()> {
    twice(|| {
        program::run(
            as_root("apt-get")
                .args(["install", "--yes", "--no-install-recommends"])
                .args(packages),
        )
    })
}

/// The server's package creates and starts a cluster, unless the common package's configuration
/// forbids it. That configuration exists only during the installation.
fn install_postgres(package: &str) -> Result<()> {
    install_packages(&["postgresql-common"])?;
    let (directory, file) = NO_CLUSTER
        .rsplit_once('/')
        .context("a path without a directory")?;
    program::run(as_root("mkdir").args(["-p", directory]))?;
    let line = format!("echo 'create_main_cluster = false' > {directory}/{file}");
    program::run(as_root("sh").args(["-c", &line]))?;
    let installed = install_packages(&[package]);
    program::run(as_root("rm").args(["-f", NO_CLUSTER]))?;
    installed
}

/// The nginx to run: the system's, else the one that was unpacked under `directory`.
pub(super) fn nginx(directory: &Path) -> Option<PathBuf> {
    program::find("nginx").or_else(|| {
        let unpacked = directory.join("nginx/usr/sbin/nginx");
        program::succeeds(Command::new(&unpacked).arg("-v")).then_some(unpacked)
    })
}

/// Prometheus' checker, located like nginx.
pub(super) fn promtool(directory: &Path) -> Option<PathBuf> {
    program::find("promtool").or_else(|| {
        let unpacked = directory.join("prometheus/usr/bin/promtool");
        program::succeeds(Command::new(&unpacked).arg("--version")).then_some(unpacked)
    })
}

/// BIND's server, located like nginx.
pub(super) fn named(directory: &Path) -> Option<PathBuf> {
    program::find("named").or_else(|| {
        let unpacked = directory.join("bind9/usr/sbin/named");
        program::succeeds(Command::new(&unpacked).arg("-v")).then_some(unpacked)
    })
}

/// etcd's server, located like nginx.
pub(super) fn etcd(directory: &Path) -> Option<PathBuf> {
    program::find("etcd").or_else(|| {
        let unpacked = directory.join("etcd-server/usr/bin/etcd");
        program::succeeds(Command::new(&unpacked).arg("--version")).then_some(unpacked)
    })
}

pub(super) fn is_root() -> bool {
    program::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Installing the package would start and enable a server. The tests only need its programs; the
/// libraries that they link are available wherever Python is.
fn unpack(package: &str, directory: &Path) -> Result<()> {
    let downloads = directory.join("packages");
    remove(&downloads)?;
    fs::create_dir_all(&downloads)?;
    twice(|| {
        program::run(
            Command::new("apt-get")
                .current_dir(&downloads)
                .args(["download", package]),
        )
    })?;
    let unpacked = directory.join(package);
    remove(&unpacked)?;
    for entry in fs::read_dir(&downloads)? {
        program::run(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(entry?.path())
                .arg(&unpacked),
        )?;
    }
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

/// A command with the permission to install, which never prompts.
fn as_root(program: &str) -> Command {
    let mut command = if is_root() {
        Command::new("env")
    } else {
        Command::new("sudo")
    };
    if !is_root() {
        command.arg("env");
    }
    command.arg("DEBIAN_FRONTEND=noninteractive").arg(program);
    command
}

/// Mirrors fail at times; a second attempt distinguishes this from a lasting failure.
fn twice(work: impl Fn() -> Result<()>) -> Result<()> {
    work().or_else(|_| work())
}

/// Read by `pg_createcluster` beside its own configuration.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/svc-tests.conf";
