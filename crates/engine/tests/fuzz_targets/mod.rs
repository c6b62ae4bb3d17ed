//! What must hold for any configuration and for anything that a platform tells. `fuzz/` feeds
//! these functions with what it invents, the tests with what is kept in `tests/corpus`.

use std::io::Write as _;

use api::link::{Item, Platform};
use engine::config::EngineConfig;
use engine::directory::Directory;
use tempfile::NamedTempFile;

/// A configuration file, and behind a zero byte the environment, a variable on each line. It is
/// read or refused, and the refusal is one line for a terminal.
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

/// What a platform tells, an item on each line: it is taken whole, and taking it twice is taking
/// it once.
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
    assert_eq!(directory.counts(), once, "a snapshot is all there is");
    directory.apply(items.clone());
    let told = directory.counts();
    directory.apply(items.clone());
    assert_eq!(directory.counts(), told, "told twice is told once");
    for project in directory.projects() {
        let endpoint = project.endpoint.as_deref().unwrap();
        // A platform gives an endpoint once and for all; one that does otherwise is not followed.
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
    assert_eq!(directory.counts(), (0, 0, 0), "what is gone leaves nothing");
    assert!(directory.authorities().is_empty());
}
