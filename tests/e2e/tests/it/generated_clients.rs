//! Clients of the HTTP APIs in Python, which openapi-python-client writes from the OpenAPI documents.
//! They are used with a running platform.
//!
//! The tests of `cargo xtask deep` compile those of openapi-generator (`tests/deep`), and the
//! platform's tests check the types of openapi-typescript.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use e2e::{API_DOCUMENTS, Platform, Service, api_document, beside_python, run};
use serde_json::{Value, json};
use tempfile::TempDir;

/// CP-7, EN-6: openapi-python-client leaves out no operation of the documents, and its clients call
/// the platform and its engine.
#[test]
fn cp_7_clients_of_openapi_python_client_call_the_platform() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (document, package) in API_DOCUMENTS {
        openapi_python_client(&directory, document, package)?;
    }
    let platform = Platform::up()?;
    let service = Service::mirror()?;
    let agent = platform.forward(&service.to_string(), &["--http"])?;
    let ready = platform.ready();
    let results = platform.python_with(
        "generated_clients.py",
        json!({
            "packages": directory.path(),
            "token": ready["token"],
            "ca_file": ready["ca_file"],
            "engine": ready["engine_url"],
        }),
    )?;
    for (document, package) in API_DOCUMENTS {
        assert_eq!(results["operations"][package], json!(operations(document)?));
    }
    assert_eq!(results["whoami"]["email"], ready["admin_email"]);
    assert_eq!(
        results["projects"]["projects"][0]["id"],
        ready["project_id"]
    );
    assert_eq!(results["projects"]["pageSize"], 1);
    let tunnels = results["tunnels"].as_array().context("no tunnels")?;
    assert_eq!(tunnels.len(), 1, "{tunnels:?}");
    assert_eq!(tunnels[0]["hostname"], agent.hostname()?);
    Ok(())
}

fn openapi_python_client(directory: &TempDir, document: &str, package: &str) -> Result<()> {
    let config = directory.path().join("config.json");
    // The code is not formatted.
    fs::write(&config, json!({"post_hooks": []}).to_string())?;
    let mut generator = Command::new(beside_python("openapi-python-client")?);
    generator
        .args(["generate", "--meta", "none", "--path"])
        .arg(api_document(document))
        .arg("--output-path")
        .arg(directory.path().join(package))
        .arg("--config")
        .arg(config);
    run(&mut generator).map(drop)
}

/// Names of the operations of a document, sorted.
fn operations(document: &str) -> Result<Vec<String>> {
    let document: Value = serde_json::from_str(&fs::read_to_string(api_document(document))?)?;
    let paths = document["paths"].as_object().context("no paths")?;
    let operations = paths.values().filter_map(Value::as_object).flatten();
    let ids = operations.filter_map(|(_, operation)| operation["operationId"].as_str());
    let mut ids: Vec<_> = ids.map(str::to_owned).collect();
    ids.sort_unstable();
    Ok(ids)
}
