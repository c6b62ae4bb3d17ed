//! Tests that `docs/configuration.md` and `docs/platform.schema.json` are current. Both are
//! generated from the file's type. `BLESS=1 cargo test -p control config` regenerates them.

use daemon::config::reference::{self, Documents};

const DOCUMENTS: Documents = Documents {
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"),
    page: "configuration.md",
    markers: [
        "<!-- keys: made from crates/control/src/config/file.rs -->\n",
        "<!-- end of the platform's keys -->\n",
    ],
    schema: "platform.schema.json",
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
