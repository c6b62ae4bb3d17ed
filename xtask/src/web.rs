//! `cargo xtask web`: downloads the web terminal of the platform's pages from npm into the target
//! directory, and builds the dashboard there.
//!
//! The next build of the program includes both. Their packages are pinned by lock files and not
//! stored with the sources. The types and the tests of the dashboard are checked there as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

use crate::program;
use crate::repository::Repository;

/// Downloads the packages, unless those of the lock files are present, and builds the files for the
/// program. Returns their folder.
pub(crate) fn run(repository: &Repository) -> Result<PathBuf> {
    // Tests of this package run at the same time and need the same folder.
    let _exclusive = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    let target = repository.target_directory()?;
    let web = target.join("web");
    terminal(repository, &target, &web)?;
    dashboard(repository, &target, &web)?;
    Ok(web)
}

/// The same as a step of other tasks: without npm the program is built without a web terminal and
/// without a dashboard, and a message states this.
pub(crate) fn offer(repository: &Repository) {
    if let Err(error) = run(repository) {
        eprintln!("    there will be no dashboard, and the pages will have no terminal: {error:#}");
    }
}

/// Checks the types of the dashboard and runs its tests, unless the same sources have passed.
pub(crate) fn check(repository: &Repository) -> Result<()> {
    run(repository)?;
    let folder = repository.target_directory()?.join(APP);
    let stamp = folder.join("stamp");
    let sources = fs::read_to_string(&stamp);
    let sources = sources.with_context(|| format!("cannot read {}", stamp.display()))?;
    let passed = folder.join("passed");
    if fs::read_to_string(&passed).is_ok_and(|passed| passed == sources) {
        return Ok(());
    }
    script(&folder.join("web"), "check")?;
    write(&passed, &sources)
}

fn terminal(repository: &Repository, target: &Path, web: &Path) -> Result<()> {
    let lock = repository.read(LOCK)?;
    let packages = target.join("web-packages");
    let stamp = packages.join("stamp");
    let made = fs::read_to_string(&stamp).is_ok_and(|made| made == lock);
    if made && FILES.iter().all(|(_, name)| web.join(name).is_file()) {
        return Ok(());
    }
    create(&packages)?;
    for file in ["package.json", "package-lock.json"] {
        let text = repository.read(&format!("{SOURCE}/{file}"))?;
        fs::write(packages.join(file), text)?;
    }
    install(&packages)?;
    create(web)?;
    for (from, name) in FILES {
        copy(&packages.join("node_modules").join(from), &web.join(name))?;
    }
    // Written last: an interrupted download is started again.
    write(&stamp, &lock)?;
    eprintln!("    the terminal of the pages is in {}", web.display());
    Ok(())
}

/// Builds the dashboard in a copy of its sources, so that the repository has no build output.
fn dashboard(repository: &Repository, target: &Path, web: &Path) -> Result<()> {
    let folder = target.join(APP);
    let sources: Vec<_> = repository
        .text_files()?
        .into_iter()
        .filter(|(path, _)| is_source(path))
        .collect();
    let lock = repository.read(APP_LOCK)?;
    let stamp = folder.join("stamp");
    let stamped: Vec<_> = sources
        .iter()
        .map(|(path, text)| format!("{path} {}\n{text}", text.len()))
        .collect();
    let stamped = stamped.concat();
    let made = fs::read_to_string(&stamp).is_ok_and(|made| made == stamped);
    let app = web.join("app");
    if made && app.join("index.html").is_file() {
        return Ok(());
    }
    for name in ["web/src", "web/test", "web/dist", "openapi"] {
        remove(&folder.join(name))?;
    }
    for (path, text) in &sources {
        let file = folder.join(path);
        create(file.parent().unwrap_or(&folder))?;
        write(&file, text)?;
    }
    let packages = folder.join("web");
    let installed = folder.join("installed");
    if !fs::read_to_string(&installed).is_ok_and(|made| made == lock) {
        install(&packages)?;
        write(&installed, &lock)?;
    }
    script(&packages, "build")?;
    remove(&app)?;
    create(&app.join("assets"))?;
    let dist = packages.join("dist");
    copy(&dist.join("index.html"), &app.join("index.html"))?;
    let assets = dist.join("assets");
    let entries = fs::read_dir(&assets);
    for entry in entries.with_context(|| format!("cannot list {}", assets.display()))? {
        let from = entry?.path();
        let name = from.file_name().unwrap_or_default();
        copy(&from, &app.join("assets").join(name))?;
    }
    write(&stamp, &stamped)?;
    eprintln!("    the dashboard is in {}", app.display());
    Ok(())
}

/// True for files from which the dashboard is built and checked: its sources, the documents from
/// which its client is generated, and what it shares with the other pages.
fn is_source(path: &str) -> bool {
    let is_json = Path::new(path).extension().is_some_and(|end| end == "json");
    let is_document = path.starts_with("openapi/") && is_json;
    path.starts_with("web/") || is_document || SHARED.contains(&path)
}

/// Installs the packages of a lock file.
fn install(packages: &Path) -> Result<()> {
    if program::find("npm").is_none() {
        bail!("npm, which comes with Node, is not there");
    }
    program::run(Command::new("npm").current_dir(packages).args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]))
}

/// Runs a script of the dashboard's package.
fn script(packages: &Path, name: &str) -> Result<()> {
    let args = ["run", "--silent", name];
    program::run(Command::new("npm").current_dir(packages).args(args))
}

fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {}", from.display()))
}

/// Held during a build.
static BUILD: Mutex<()> = Mutex::new(());

const SOURCE: &str = "crates/control/web";

/// The folder of the copy of the dashboard's sources, below the target directory.
const APP: &str = "web-app";

/// Files of the pages that the server renders and of the dashboard: the colours, and the script that
/// keeps a press on its button.
const SHARED: [&str; 2] = [
    "crates/control/src/pages/templates/tokens.css",
    "crates/control/src/pages/terminal/press.mjs",
];

/// The lock file of the packages of the terminal.
pub(crate) const LOCK: &str = "crates/control/web/package-lock.json";

/// The lock file of the packages of the dashboard.
pub(crate) const APP_LOCK: &str = "web/package-lock.json";

/// The folder of the installed packages of the dashboard, below the target directory.
pub(crate) const APP_PACKAGES: &str = "web-app/web/node_modules";

/// Path of each file in the packages, and its name in the program.
const FILES: [(&str, &str); 4] = [
    ("@xterm/xterm/lib/xterm.mjs", "xterm.mjs"),
    ("@xterm/addon-fit/lib/addon-fit.mjs", "addon-fit.mjs"),
    ("@xterm/xterm/css/xterm.css", "xterm.css"),
    ("@xterm/xterm/LICENSE", "LICENSE-xterm.txt"),
];
