//! Keeps `docs/configuration.md` and `docs/engine.schema.json` current: both are generated from the
//! type of the file. `BLESS=1 cargo test -p engine config` writes them again.

use std::fs;
use std::path::{Path, PathBuf};

use daemon::config::reference;

const BEGIN: &str = "<!-- keys: made from crates/engine/src/config/file.rs -->\n";
const END: &str = "<!-- end of keys -->\n";

#[test]
fn the_reference_has_every_key() {
    let path = docs("configuration.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let keys = reference::markdown(&super::schema());
    is_current(
        &path,
        &text,
        &format!("{before}{BEGIN}\n{keys}{END}{after}"),
    );
}

#[test]
fn the_committed_schema_is_current() {
    let path = docs("engine.schema.json");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let schema = serde_json::to_string_pretty(&super::schema()).unwrap();
    is_current(&path, &text, &format!("{schema}\n"));
}

#[test]
fn every_key_is_described() {
    assert_eq!(
        reference::undescribed(&super::schema()),
        Vec::<String>::new()
    );
}

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

fn is_current(path: &Path, text: &str, expected: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, expected).unwrap();
    } else {
        assert!(
            text == expected,
            "{} is not current: BLESS=1 writes it",
            path.display()
        );
    }
}
