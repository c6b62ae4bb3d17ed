//! `docs/dashboard-pages.md` lists each operation once: with the page that does it, or with the reason
//! why none does.

use std::path::Path;

use serde_json::Value;

#[test]
fn each_operation_has_a_page_of_the_dashboard_or_a_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dashboard-pages.md");
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let (operation, _) = line.strip_prefix("| `")?.split_once('`')?;
        operation.contains(" /").then(|| operation.to_owned())
    };
    let mut listed: Vec<_> = text.lines().filter_map(row).collect();
    let documents = [api::control::document(), api::engine::document()];
    let mut operations: Vec<_> = documents.iter().flat_map(operations).collect();
    listed.sort_unstable();
    operations.sort_unstable();
    assert_eq!(listed, operations);
}

/// Method and path of each operation. The documents of both servers have some in common.
fn operations(document: &Value) -> Vec<String> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap();
        let methods = methods
            .iter()
            .filter(|(_, one)| one.get("operationId").is_some());
        methods
            .map(|(method, _)| format!("{} {path}", method.to_ascii_uppercase()))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}
