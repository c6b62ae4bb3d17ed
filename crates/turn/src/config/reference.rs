//! Tests that `docs/configuration.md` and `docs/turn.schema.json` are current: both are generated
//! from the file's type. `BLESS=1 cargo test -p turn config` writes them.

use std::fs;
use std::path::{Path, PathBuf};

use daemon::config::reference;

const BEGIN: &str = "<!-- turn keys: made from crates/turn/src/config/file.rs -->\n";
const END: &str = "<!-- end of turn keys -->\n";

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
    let path = docs("turn.schema.json");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let schema = serde_json::to_string_pretty(&super::schema()).unwrap();
    is_current(&path, &text, &format!("{schema}\n"));
}

#[test]
fn the_examples_of_the_documentation_are_accepted() {
    let (mut seen, parse) = (0, |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let home = ("HOME".to_owned(), "/relay".to_owned());
        super::TurnConfig::load(Some(file.path()), [home]).unwrap();
    });
    for name in ["configuration.md", "turn.md"] {
        let text = fs::read_to_string(docs(name)).unwrap();
        for rest in text.split("```yaml\n").skip(1) {
            let example = rest.split("```").next().unwrap();
            // Other examples are for the engine and the platform, or are fragments.
            if example.contains("realm:") {
                parse(example);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 2);
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
