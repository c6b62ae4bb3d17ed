//! Keeps `docs/configuration.md` and `docs/engine.schema.json` current: both are generated from the
//! type of the file. `BLESS=1 cargo test -p engine config` writes them again.

use daemon::config::reference::{self, Documents};

const DOCUMENTS: Documents = Documents {
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"),
    page: "configuration.md",
    markers: [
        "<!-- keys: made from crates/engine/src/config/file.rs -->\n",
        "<!-- end of keys -->\n",
    ],
    schema: "engine.schema.json",
};

#[test]
fn the_reference_has_every_key() {
    DOCUMENTS.check_page(&super::schema()).unwrap();
}

#[test]
fn the_committed_schema_is_current() {
    DOCUMENTS.check_schema(&super::schema()).unwrap();
}

#[test]
fn every_key_is_described() {
    assert_eq!(
        reference::undescribed(&super::schema()),
        Vec::<String>::new()
    );
}
