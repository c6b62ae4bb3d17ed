//! Clients that published generators write from the OpenAPI documents. All of them compile, and one
//! is used with a running platform.
//!
//! The types of openapi-typescript are checked by the platform's tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Platform, Service, node, packages, provided, python};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The documents, and the packages of their clients.
const DOCUMENTS: [(&str, &str); 2] = [("control-plane", "control_plane"), ("engine", "engine")];

/// CP-7, EN-6: with the defaults of the generator, except for the names of packages and libraries.
#[test]
fn cp_7_clients_of_openapi_generator_compile_in_three_languages() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    openapi_generator(at)?;
    for (_, package) in DOCUMENTS {
        go(&at.join(format!("go-{package}")))?;
    }
    java(at)?;
    typescript(at)
}

/// Runs openapi-generator for all languages and documents, in one process.
fn openapi_generator(at: &Path) -> Result<()> {
    let mut configs = Vec::new();
    for (document, package) in DOCUMENTS {
        for (generator, library, properties) in [
            ("go", None, json!({"packageName": package})),
            (
                "java",
                Some("native"),
                json!({
                    "invokerPackage": package,
                    "apiPackage": format!("{package}.api"),
                    "modelPackage": format!("{package}.model"),
                    // Without them, the client needs no library besides Jackson.
                    "openApiNullable": false,
                    "useJakartaEe": true,
                }),
            ),
            ("typescript-fetch", None, json!({})),
        ] {
            let mut config = json!({
                "generatorName": generator,
                "inputSpec": openapi(document),
                "outputDir": at.join(format!("{generator}-{package}")),
                "additionalProperties": properties,
                "globalProperties": {
                    "apiTests": "false", "modelTests": "false",
                    "apiDocs": "false", "modelDocs": "false",
                },
            });
            if let Some(library) = library {
                config["library"] = json!(library);
            }
            let file = at.join(format!("{generator}-{package}.json"));
            fs::write(&file, config.to_string())?;
            configs.push(file);
        }
    }
    let mut generator = Command::new(beside_python("openapi-generator-cli")?);
    generator.args(["batch", "--fail-fast"]).args(configs);
    run(&mut generator).map(drop)
}

/// The client needs no other module, and no newer Go than the system's.
fn go(client: &Path) -> Result<()> {
    fs::write(client.join("go.mod"), "module client\n\ngo 1.18\n")?;
    let mut go = Command::new(provided("SVC_TEST_GO")?);
    go.current_dir(client)
        .args(["build", "."])
        .env("GOFLAGS", "")
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOPATH", client.join("path"))
        // It outlives the test: a new Go compiles its standard library on first use.
        .env("GOCACHE", beside_python("..")?.join("go-build"));
    run(&mut go).map(drop)
}

/// Both clients at once. The generator's own jar contains Jackson.
fn java(at: &Path) -> Result<()> {
    let jar = "import openapi_generator_cli, pathlib; \
               print(pathlib.Path(openapi_generator_cli.__file__).parent / 'openapi-generator.jar')";
    let jar = run(Command::new(python()?).args(["-c", jar]))?;
    let annotations = Path::new(env!("CARGO_MANIFEST_DIR")).join("java");
    let mut sources = files(&annotations, "java")?;
    for (_, package) in DOCUMENTS {
        sources.extend(files(&at.join(format!("java-{package}/src/main")), "java")?);
    }
    ensure!(sources.len() > 100, "{} sources", sources.len());
    let mut javac = Command::new(provided("SVC_TEST_JAVAC")?);
    javac
        .args(["-proc:none", "-nowarn", "-classpath", jar.trim(), "-d"])
        .arg(at.join("classes"))
        .args(sources);
    run(&mut javac).map(drop)
}

fn typescript(at: &Path) -> Result<()> {
    let mut tsc = Command::new(node()?);
    tsc.arg(packages()?.join("typescript/bin/tsc"))
        .args(["--noEmit", "--strict", "--target", "es2022"])
        .args(["--module", "nodenext"])
        .args(
            DOCUMENTS.map(|(_, package)| at.join(format!("typescript-fetch-{package}/index.ts"))),
        );
    run(&mut tsc).map(drop)
}

/// CP-7, EN-6: openapi-python-client leaves out no operation of the documents, and its clients call
/// the platform and its engine.
#[test]
fn cp_7_clients_of_openapi_python_client_call_the_platform() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (document, package) in DOCUMENTS {
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
    for (document, package) in DOCUMENTS {
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
        .arg(openapi(document))
        .arg("--output-path")
        .arg(directory.path().join(package))
        .arg("--config")
        .arg(config);
    run(&mut generator).map(drop)
}

/// Names of the operations of a document, sorted.
fn operations(document: &str) -> Result<Vec<String>> {
    let document: Value = serde_json::from_str(&fs::read_to_string(openapi(document))?)?;
    let paths = document["paths"].as_object().context("no paths")?;
    let operations = paths.values().filter_map(Value::as_object).flatten();
    let ids = operations.filter_map(|(_, operation)| operation["operationId"].as_str());
    let mut ids: Vec<_> = ids.map(str::to_owned).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn openapi(document: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("openapi").join(document).with_extension("json")
}

/// A program of the Python packages, or a directory relative to them.
fn beside_python(name: &str) -> Result<PathBuf> {
    let python = python()?;
    let directory = python.parent().context("no directory")?;
    Ok(directory.join(name))
}

/// The files with this extension, in all directories below.
fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|kind| kind == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Runs a program that must succeed. Returns its output.
fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{} failed:\n{text}\n{}",
        command.get_program().display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}
