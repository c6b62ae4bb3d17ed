//! The crate graph: allowed dependencies between our crates, and crates that some must never depend
//! on, even indirectly.
//!
//! A separate crate is justified by dependencies that it must not have. Direct edges are read from
//! the manifests; indirect ones from the tree that cargo resolves for this platform with the
//! features that are actually enabled.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::program;
use crate::repository::Repository;

/// Every crate of the workspace with its allowed dependencies among our crates, lower layers first.
const EDGES: &[(&str, &[&str])] = &[
    // Layer 0, pure: values and decisions, no IO, no clock.
    ("types", &[]),
    ("credentials", &["types"]),
    ("wire", &["types"]),
    ("tty", &["types"]),
    ("webauthn", &["types"]),
    ("http1", &[]),
    ("api", &["types"]),
    ("ownership", &[]),
    // Layer 1, runtime: sockets and processes, independent of their use.
    ("transport", &["wire"]),
    ("pty", &[]),
    ("daemon", &["types"]),
    ("store", &["types"]),
    ("link", &["api", "types"]),
    ("etcd", &["ownership", "types"]),
    ("dns", &[]),
    ("acme", &["daemon", "dns"]),
    // Layer 2, services. The two communicate only over the network.
    (
        "engine",
        &[
            "acme",
            "api",
            "credentials",
            "daemon",
            "dns",
            "etcd",
            "http1",
            "link",
            "ownership",
            "transport",
            "tty",
            "types",
            "wire",
        ],
    ),
    ("client", &["http1", "transport", "types", "wire"]),
    ("inspector", &["client", "http1", "types"]),
    (
        "terminal",
        &["api", "client", "pty", "transport", "tty", "types"],
    ),
    (
        "control",
        &[
            "acme",
            "api",
            "credentials",
            "daemon",
            "store",
            "tty",
            "types",
            "webauthn",
        ],
    ),
    ("mcp", &["api", "types"]),
    (
        "turn",
        &[
            "acme",
            "api",
            "credentials",
            "daemon",
            "link",
            "transport",
            "types",
        ],
    ),
    // Layer 3, wiring.
    (
        "svc",
        &[
            "acme",
            "api",
            "client",
            "control",
            "credentials",
            "daemon",
            "engine",
            "inspector",
            "mcp",
            "terminal",
            "transport",
            "tty",
            "turn",
            "types",
        ],
    ),
    // For tests: only ever a dev-dependency of the others.
    ("ports", &[]),
    (
        "testing",
        &[
            "api",
            "client",
            "control",
            "credentials",
            "daemon",
            "engine",
            "http1",
            "ports",
            "transport",
            "types",
            "wire",
        ],
    ),
    // Black-box: they use the program and never its crates.
    ("conformance", &[]),
    ("e2e", &["ports"]),
    ("attack", &["e2e"]),
    ("bench-tools", &[]),
    ("xtask", &[]),
];

/// Crates that are packed for a registry. Their packages have [`PREFIX`], because the short names
/// are taken there; the table above has the names in the code.
pub(crate) const PACKED: [&str; 5] = ["types", "wire", "http1", "transport", "client"];

/// Prefix of the package names of [`PACKED`].
const PREFIX: &str = "svc-";

/// The package of one of our crates.
pub(crate) fn package(name: &str) -> String {
    if PACKED.contains(&name) {
        format!("{PREFIX}{name}")
    } else {
        name.to_owned()
    }
}

/// The crate of a package, including external ones.
fn crate_of(package: &str) -> &str {
    let short = package.strip_prefix(PREFIX);
    short
        .filter(|name| PACKED.contains(name))
        .unwrap_or(package)
}

/// Crates that these crates must not depend on, not even indirectly.
const BARRIERS: &[Barrier] = &[
    Barrier {
        crates: &[
            "types",
            "credentials",
            "wire",
            "tty",
            "webauthn",
            "http1",
            "api",
            "ownership",
        ],
        never: &[
            "tokio", "mio", "socket2", "hyper", "axum", "reqwest", "sqlx",
        ],
        reason: "pure crates have no IO and no runtime",
    },
    Barrier {
        crates: &["engine"],
        never: &["store", "control", "sqlx", "webauthn"],
        reason: "the community engine cannot contain hosted code",
    },
    Barrier {
        crates: &["control"],
        never: &["engine", "client", "transport", "wire"],
        reason: "the control plane and the engines meet over the network only",
    },
    Barrier {
        crates: &["mcp"],
        never: &["store", "control", "engine", "client"],
        reason: "tools are operations of the document, whoever serves it",
    },
    Barrier {
        crates: &["turn"],
        never: &["store", "control", "engine", "client", "sqlx", "webauthn"],
        reason: "a relay knows what the platform tells over the link, and nothing else",
    },
    Barrier {
        crates: &["client"],
        never: &["engine", "daemon", "credentials", "axum"],
        reason: "an agent contains no server",
    },
    Barrier {
        crates: &["inspector"],
        never: &["engine", "daemon", "credentials", "sqlx"],
        reason: "an agent shows what passes it, and contains no engine",
    },
    Barrier {
        crates: &["pty"],
        never: &["hyper", "axum", "reqwest", "rustls"],
        reason: "a terminal of this host does not know the network",
    },
    Barrier {
        crates: &["terminal"],
        never: &["engine", "control", "store", "daemon", "axum", "sqlx"],
        reason: "an agent shows its terminals, and contains no engine",
    },
    Barrier {
        crates: &["daemon"],
        never: &["wire", "credentials"],
        reason: "running a process does not depend on what it serves",
    },
    Barrier {
        crates: &["store"],
        never: &["http", "hyper", "axum", "reqwest"],
        reason: "the store does not know who asks, or how",
    },
    Barrier {
        crates: &["link"],
        never: &["credentials", "daemon", "axum", "sqlx"],
        reason: "the link carries what the platform says and does not know what it means",
    },
    Barrier {
        crates: &["etcd"],
        never: &["credentials", "daemon", "axum", "reqwest", "sqlx"],
        reason: "the store of a cluster has names and owners, whatever they stand for",
    },
    Barrier {
        crates: &["svc"],
        never: &["testing"],
        reason: "what is shipped contains no test code",
    },
];

/// Crates that the small agent, a build without the feature `server`, must not depend on.
const AGENT: Barrier = Barrier {
    crates: &["svc"],
    never: &[
        "engine",
        "control",
        "turn",
        "store",
        "link",
        "etcd",
        "webauthn",
        "sqlx",
        "lettre",
        "maxminddb",
    ],
    reason: "an agent alone contains no server",
};

/// Crates that a small program with only the client library, without the default features, must not
/// depend on: those for the Engine API, and the shared types of the platform.
const SMALL: Barrier = Barrier {
    crates: &["client"],
    never: &[
        "hyper",
        "hyper-util",
        "jiff",
        "regex",
        "serde",
        "serde_json",
        "tokio-tungstenite",
        "utoipa",
    ],
    reason: "a small program pays for what it uses",
};

/// Maximum number of packages in such a program, including ours and those of the build. It has 57;
/// exceeding the limit needs a decision.
const SMALL_LIMIT: usize = 60;

struct Barrier {
    crates: &'static [&'static str],
    never: &'static [&'static str],
    reason: &'static str,
}

pub(super) fn check(repository: &Repository) -> Result<Vec<String>> {
    let packages = packages(&repository.metadata()?)?;
    let mut complaints = direct(&packages);
    for barrier in BARRIERS {
        for name in barrier
            .crates
            .iter()
            .filter(|name| packages.contains_key(**name))
        {
            complaints.extend(barrier.complaints(name, &dependencies_of(repository, name)?));
        }
    }
    for barrier in [AGENT, SMALL] {
        for name in barrier.crates {
            complaints.extend(barrier.complaints(name, &reached_alone(repository, name)?));
        }
    }
    let small = reached_alone(repository, "client")?.len();
    if small > SMALL_LIMIT {
        complaints.push(format!(
            "crate graph: `client` without features reaches {small} crates, more than {SMALL_LIMIT}"
        ));
    }
    Ok(complaints)
}

/// The dependencies of one of our packages, among our own.
#[derive(Debug, Default, PartialEq)]
struct Dependencies {
    normal: BTreeSet<String>,
    dev: BTreeSet<String>,
}

/// The workspace's packages and the dependencies between them. A dependency from the registry has a
/// source, one of ours has none.
fn packages(metadata: &Value) -> Result<BTreeMap<String, Dependencies>> {
    let list = metadata
        .get("packages")
        .and_then(Value::as_array)
        .context("no packages")?;
    let mut packages = BTreeMap::new();
    for package in list {
        let name = crate_of(text(package, "name").context("a package without a name")?);
        let declared = package.get("dependencies").and_then(Value::as_array);
        let mut dependencies = Dependencies::default();
        for dependency in declared.context("a package without dependencies")? {
            if text(dependency, "source").is_some() {
                continue;
            }
            let on = text(dependency, "name").context("a dependency without a name")?;
            let on = crate_of(on).to_owned();
            match text(dependency, "kind") {
                Some("dev") => dependencies.dev.insert(on),
                _ => dependencies.normal.insert(on),
            };
        }
        packages.insert(name.to_owned(), dependencies);
    }
    Ok(packages)
}

/// Complaints about the direct edges and about the table itself.
fn direct(packages: &BTreeMap<String, Dependencies>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, dependencies) in packages {
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| known == name) else {
            complaints.push(format!(
                "crate graph: `{name}` has no row in the table of edges"
            ));
            continue;
        };
        for on in dependencies
            .normal
            .iter()
            .filter(|on| !allowed.contains(&on.as_str()))
        {
            complaints.push(format!("crate graph: `{name}` must not depend on `{on}`"));
        }
        if dependencies.dev.contains("svc") {
            complaints.push(format!(
                "crate graph: `{name}` tests the binary as a library"
            ));
        }
    }
    for (name, _) in EDGES
        .iter()
        .filter(|(name, _)| !packages.contains_key(*name))
    {
        complaints.push(format!(
            "crate graph: the table of edges names `{name}`, which is gone"
        ));
    }
    complaints
}

impl Barrier {
    fn complaints(&self, name: &str, reached: &BTreeSet<String>) -> Vec<String> {
        let crossed = self.never.iter().filter(|never| reached.contains(**never));
        crossed
            .map(|never| format!("crate graph: `{name}` reaches `{never}`: {}", self.reason))
            .collect()
    }
}

/// Every package that is built into this one on this platform.
fn dependencies_of(repository: &Repository, name: &str) -> Result<BTreeSet<String>> {
    tree(
        repository,
        &["--package", &package(name), "--edges", "normal"],
    )
}

/// The same without the default features.
fn reached_alone(repository: &Repository, name: &str) -> Result<BTreeSet<String>> {
    let package = package(name);
    let alone = [
        "--package",
        &package,
        "--edges",
        "normal",
        "--no-default-features",
    ];
    tree(repository, &alone)
}

/// The names that `cargo tree` lists for these arguments.
pub(super) fn tree(repository: &Repository, args: &[&str]) -> Result<BTreeSet<String>> {
    let mut cargo = program::cargo();
    cargo.current_dir(repository.root());
    cargo
        .args([
            "tree",
            "--locked",
            "--offline",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .args(args);
    let listing = program::output(&mut cargo)?;
    Ok(listing
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(|package| crate_of(package).to_owned())
        .collect())
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The real graph with one more normal dependency.
    fn graph_with(from: &str, to: &str) -> BTreeMap<String, Dependencies> {
        let repository = Repository::of_this_package().unwrap();
        let mut packages = packages(&repository.metadata().unwrap()).unwrap();
        packages.get_mut(from).unwrap().normal.insert(to.to_owned());
        packages
    }

    #[test]
    fn a_forbidden_edge_is_found() {
        assert_eq!(
            direct(&graph_with("types", "wire")),
            ["crate graph: `types` must not depend on `wire`"]
        );
        assert_eq!(
            direct(&graph_with("client", "engine")),
            ["crate graph: `client` must not depend on `engine`"]
        );
        assert_eq!(
            direct(&graph_with("svc", "testing")),
            ["crate graph: `svc` must not depend on `testing`"]
        );
    }

    #[test]
    fn a_crate_without_a_row_and_a_row_without_a_crate_are_found() {
        let mut packages = graph_with("api", "types");
        let http1 = packages.remove("http1").unwrap();
        packages.insert("http2".to_owned(), http1);
        assert_eq!(
            direct(&packages),
            [
                "crate graph: `http2` has no row in the table of edges",
                "crate graph: the table of edges names `http1`, which is gone",
            ]
        );
    }

    #[test]
    fn only_our_own_packages_are_edges_and_dev_edges_are_apart() {
        let metadata = json!({"packages": [{"name": "engine", "dependencies": [
            {"name": "types", "source": null, "kind": null},
            {"name": "testing", "source": null, "kind": "dev"},
            {"name": "bytes", "source": "registry", "kind": null},
        ]}]});
        let packages = packages(&metadata).unwrap();
        let engine = &packages["engine"];
        assert_eq!(engine.normal, BTreeSet::from(["types".to_owned()]));
        assert_eq!(engine.dev, BTreeSet::from(["testing".to_owned()]));
    }

    #[test]
    fn a_crossed_barrier_is_found() {
        let repository = Repository::of_this_package().unwrap();
        let [pure, ..] = BARRIERS else {
            panic!("the table is empty")
        };
        // `transport` is in the runtime layer, so the barrier of the pure crates reports it.
        let complaints = pure.complaints(
            "transport",
            &dependencies_of(&repository, "transport").unwrap(),
        );
        assert!(
            complaints
                .iter()
                .any(|line| line.contains("reaches `tokio`")),
            "{complaints:?}"
        );
        assert!(
            complaints.iter().all(|line| !line.contains("sqlx")),
            "{complaints:?}"
        );
    }

    #[test]
    fn every_row_sees_only_rows_above_it() {
        let mut seen = BTreeSet::new();
        for (name, allowed) in EDGES {
            assert!(
                allowed.iter().all(|on| seen.contains(on)),
                "`{name}` sees a later row"
            );
            seen.insert(name);
        }
    }
}
