//! The Dockerfile. No container is built here, so its text is checked.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A stage: its base image, and its instructions.
struct Stage {
    from: String,
    lines: Vec<String>,
}

/// The stages by name, and their external base images.
fn stages() -> (BTreeMap<String, Stage>, BTreeSet<String>) {
    let repository = Repository::of_this_package().unwrap();
    let text = repository.read("deploy/Dockerfile").unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let mut stages: BTreeMap<String, Stage> = BTreeMap::new();
    let mut images = BTreeSet::new();
    let mut last = String::new();
    for line in joined.lines() {
        if let ["FROM", from, "AS", stage] = line.split_whitespace().collect::<Vec<_>>()[..] {
            if !stages.contains_key(from) {
                images.insert(from.to_owned());
            }
            last = stage.to_owned();
            let from = from.to_owned();
            let lines = Vec::new();
            stages.insert(last.clone(), Stage { from, lines });
        } else if let Some(stage) = stages.get_mut(&last) {
            stage.lines.push(line.to_owned());
        } else {
            assert!(line.is_empty(), "before the first stage: {line}");
        }
    }
    (stages, images)
}

fn has(stage: &Stage, part: &str) -> bool {
    stage.lines.iter().any(|line| line.contains(part))
}

#[test]
fn bases_are_pinned() {
    let (_, images) = stages();
    assert_eq!(images.len(), 3, "{images:?}");
    for image in images {
        let (name, tag) = image.split_once(':').unwrap();
        // A tag such as `1-bookworm` moves; one with a full version or a date does not.
        let first = tag
            .split('-')
            .find(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        let number = first.unwrap();
        let is_exact = number.split('.').count() == 3 || number.len() == 8;
        assert!(is_exact || tag.contains("@sha256:"), "{name}: {tag}");
    }
    // The compiler of the image supports the workspace's version.
    let repository = Repository::of_this_package().unwrap();
    let manifest = repository.read("Cargo.toml").unwrap();
    let required = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let required: Vec<u32> = numbers(required.unwrap().trim_matches('"'));
    let (stages, _) = stages();
    let actual = numbers(stages["source"].from.strip_prefix("rust:").unwrap());
    assert!(actual >= required, "{actual:?}");
}

fn numbers(version: &str) -> Vec<u32> {
    let version = version.split('-').next().unwrap();
    version
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect()
}

/// Each program is built by the packaging task: with the web terminal, or without any.
#[test]
fn programs_are_those_of_the_packages() {
    let (stages, _) = stages();
    for (build, package, image) in [
        ("build", "svc", "svc"),
        ("build-agent", "svc-agent", "agent"),
    ] {
        let task = format!("cargo xtask dist --only-build {package} --out /out");
        let run = stages[build].lines.iter().find(|line| line.contains(&task));
        let run = run.unwrap();
        for cache in [
            "target=/usr/local/cargo/registry",
            "target=/workspace/svc/target",
        ] {
            assert!(run.contains(cache), "{run}");
        }
        // Two platforms that are built at the same time have separate caches.
        assert_eq!(run.matches("--mount=type=cache").count(), 2);
        assert_eq!(run.matches("${TARGETARCH}").count(), 2);
        let copied = format!("COPY --from={build} /out/{package}");
        for (file, place) in [
            (".program", "/usr/bin/svc"),
            (
                ".THIRD-PARTY-LICENSES",
                "/usr/share/doc/svc/THIRD-PARTY-LICENSES",
            ),
            (".cdx.json", "/usr/share/doc/svc/sbom.cdx.json"),
        ] {
            let line = format!("{copied}{file} {place}");
            assert!(stages[image].lines.contains(&line), "{line}");
        }
        assert!(has(&stages[image], "USER 65532:65532"), "{image}");
    }
    assert!(has(&stages["build"], "COPY --from=node "));
    // The agent's image has no parts of the servers.
    assert!(
        !stages["agent"]
            .lines
            .iter()
            .any(|line| line.contains("--from=build "))
    );
    assert_eq!(stages["agent"].from, "base");
    assert!(!has(&stages["base"], "curl"));
}

/// Each server serves metrics at the address of the image's health check, both as packaged and in
/// the compose file, and Prometheus uses the same address.
#[test]
fn health_checks_use_the_address_of_each_server() {
    let repository = Repository::of_this_package().unwrap();
    let (stages, _) = stages();
    let ports = stages["svc"].lines.iter().find_map(|line| {
        let ports = line.strip_prefix("ENV HEALTH_PORTS=")?;
        Some(ports.trim_matches('"').split(' ').collect::<Vec<_>>())
    });
    let ports = ports.unwrap();
    let scraped = repository.read("deploy/prometheus/prometheus.yml").unwrap();
    let servers = ["engine", "platform", "turn"];
    assert_eq!(ports.len(), servers.len());
    for (name, port) in servers.into_iter().zip(ports) {
        for (folder, address) in [("etc", "127.0.0.1"), ("compose", "0.0.0.0")] {
            let config = repository
                .read(&format!("deploy/{folder}/{name}.yaml"))
                .unwrap();
            let line = format!("listen_addr: {address}:{port}\n");
            assert!(config.contains(&line), "{folder}/{name}: {line}");
        }
        assert!(scraped.contains(&format!("\"{name}:{port}\"")), "{name}");
    }
    assert!(has(&stages["svc"], "HEALTHCHECK "));
    assert!(has(&stages["svc"], "/readyz"));
}
