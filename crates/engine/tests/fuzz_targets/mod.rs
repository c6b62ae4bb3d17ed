//! Properties that hold for any configuration and any update from a platform. `fuzz/` feeds these
//! functions with generated input, the tests with the inputs kept in `tests/corpus`.

use std::io::Write as _;

use api::link::{Item, Platform};
use engine::config::EngineConfig;
use engine::directory::Directory;
use tempfile::NamedTempFile;

/// A configuration file, followed after a zero byte by the environment, one variable per line. It
/// is either read or refused, and the refusal is one line for a terminal.
pub(crate) fn config(data: &[u8]) {
    let (file, environment) = data
        .iter()
        .position(|byte| *byte == 0)
        .map_or((data, &[][..]), |end| (&data[..end], &data[end + 1..]));
    let environment = String::from_utf8_lossy(environment);
    let variables = environment
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut on_disk = NamedTempFile::new().unwrap();
    on_disk.write_all(file).unwrap();
    if let Err(refusal) = EngineConfig::load(Some(on_disk.path()), variables) {
        let shown = refusal.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
    }
}

/// Replicated items of a platform, one per line. All of them are applied, and applying them twice
/// has the same result as applying them once.
pub(crate) fn directory(data: &[u8]) {
    let items: Vec<Item> = data
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let directory = Directory::default();
    let platform = || Platform {
        base_url: "https://platform.example".to_owned(),
        cluster_domain: "engine.example".to_owned(),
    };
    directory.replace(platform(), items.clone());
    let once = directory.counts();
    directory.replace(platform(), items.clone());
    assert_eq!(directory.counts(), once, "a snapshot replaces everything");
    directory.apply(items.clone());
    let told = directory.counts();
    directory.apply(items.clone());
    assert_eq!(
        directory.counts(),
        told,
        "a repeated update changes nothing"
    );
    for project in directory.projects() {
        let endpoint = project.endpoint.as_deref().unwrap();
        // A platform never changes an assigned endpoint. The engine does not follow a platform that
        // does.
        let is_its_own = items.iter().all(|item| match item {
            Item::Project(told) => told.id == *project.id || told.endpoint != endpoint,
            _ => true,
        });
        assert!(
            !is_its_own || directory.project_at(endpoint).is_some(),
            "found by its address"
        );
    }
    let gone = items.iter().filter_map(|item| match item {
        Item::Project(project) => Some(Item::ProjectGone {
            id: project.id.clone(),
        }),
        Item::Person(person) => Some(Item::PersonGone {
            id: person.id.clone(),
        }),
        Item::Credential(credential) => Some(Item::CredentialGone {
            id: credential.id.clone(),
        }),
        Item::WebttyServer(server) => Some(Item::WebttyServerGone {
            id: server.id.clone(),
        }),
        _ => None,
    });
    directory.apply(gone.collect());
    assert_eq!(
        directory.counts(),
        (0, 0, 0),
        "removed items leave nothing behind"
    );
    assert!(directory.authorities().is_empty());
}
