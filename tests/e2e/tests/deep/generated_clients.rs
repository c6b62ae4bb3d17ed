//! Clients that openapi-generator writes from the OpenAPI documents compile in three languages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use e2e::{API_DOCUMENTS, api_document, beside_python, node, packages, provided, python, run};
use serde_json::json;

use crate::ALONE;

/// CP-7, EN-6: with the defaults of the generator, except for the names of packages and libraries.
#[test]
fn cp_7_clients_of_openapi_generator_compile_in_three_languages() -> Result<()> {
    let _alone = ALONE.blocking_lock();
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    openapi_generator(at)?;
    for (_, package) in API_DOCUMENTS {
        go(&at.join(format!("go-{package}")))?;
    }
    java(at)?;
    typescript(at)
}

/// Runs openapi-generator for all languages and documents, in one process.
fn openapi_generator(at: &Path) -> Result<()> {
    let mut configs = Vec::new();
    for (document, package) in API_DOCUMENTS {
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
                "inputSpec": api_document(document),
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
    for (_, package) in API_DOCUMENTS {
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
            API_DOCUMENTS
                .map(|(_, package)| at.join(format!("typescript-fetch-{package}/index.ts"))),
        );
    run(&mut tsc).map(drop)
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
