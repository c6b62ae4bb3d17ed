//! Tests that `docs/configuration.md` and `docs/turn.schema.json` are current: both are generated
//! from the Rust type of the configuration file (`config/file.rs`). `BLESS=1 cargo test -p turn
//! config` writes them.

use std::fs;
use std::path::Path;

use daemon::config::reference::{self, Documents};

const DOCUMENTS: Documents = Documents {
    folder: DOCS,
    page: "configuration.md",
    markers: [
        "<!-- turn keys: made from crates/turn/src/config/file.rs -->\n",
        "<!-- end of turn keys -->\n",
    ],
    schema: "turn.schema.json",
};
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

#[test]
fn the_reference_has_every_key() {
    DOCUMENTS.check_page(&super::schema()).unwrap();
}

#[test]
fn the_committed_schema_is_current() {
    DOCUMENTS.check_schema(&super::schema()).unwrap();
}

#[test]
fn the_examples_of_the_documentation_are_accepted() {
    let mut seen = 0;
    let parse = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        // The default state directory is under HOME.
        let variable = ("HOME".to_owned(), "/relay".to_owned());
        super::TurnConfig::load(Some(file.path()), [variable]).unwrap();
    };
    for name in ["configuration.md", "turn.md"] {
        let text = fs::read_to_string(Path::new(DOCS).join(name)).unwrap();
        for section in text.split("```yaml\n").skip(1) {
            let example = section.split("```").next().unwrap();
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
