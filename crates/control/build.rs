//! Embeds the web terminal and the dashboard in the program, if they were built.
//!
//! `cargo xtask web` puts both into `web` below the target directory: xterm.js with its licence,
//! and in `app` the dashboard. They are never part of the sources. The pages of a build without
//! them report that, so that the program builds without Node.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::{Compression, GzBuilder};

/// Files of the terminal pages, by their name in the directory.
const FILES: [&str; 4] = [
    "xterm.mjs",
    "addon-fit.mjs",
    "xterm.css",
    "LICENSE-xterm.txt",
];

/// The document of the dashboard. All its other files are in `app/assets`.
const INDEX: &str = "app/index.html";

fn main() -> Result<(), Box<dyn Error>> {
    let directory = directory()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-env-changed=SVC_WEB_DIR");
    println!("cargo::rerun-if-changed={}", directory.display());
    let present = FILES.iter().all(|name| directory.join(name).is_file());
    let mut code = String::from("[");
    for name in FILES.iter().filter(|_| present) {
        let path = directory.join(name);
        let path = text(&path)?;
        write!(code, "({name:?}, include_bytes!({path:?}) as &[u8]),")?;
    }
    code.push(']');
    fs::write(out.join("web.rs"), format!("&{code}"))?;
    fs::write(out.join("dashboard.rs"), dashboard(&directory, &out)?)?;
    Ok(())
}

/// The directory of the files: `SVC_WEB_DIR`, or `web` below the target directory. The latter is
/// created if it is missing, because cargo would rebuild each time for a missing directory.
fn directory() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(given) = env::var_os("SVC_WEB_DIR") {
        let given = PathBuf::from(given);
        let mut needed = FILES.iter().chain([&INDEX]);
        if let Some(missing) = needed.find(|name| !given.join(name).is_file()) {
            return Err(format!("SVC_WEB_DIR has no {missing}: `cargo xtask web` makes it").into());
        }
        return Ok(given);
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Cargo marks its target directory with this file.
    let target = out
        .ancestors()
        .find(|directory| directory.join("CACHEDIR.TAG").is_file())
        .map(Path::to_path_buf);
    let web = match target {
        Some(target) => target.join("web"),
        None => Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../target/web"),
    };
    fs::create_dir_all(&web)?;
    Ok(web)
}

/// Code for the list of the dashboard's files: name, contents, contents compressed with gzip. Empty
/// if it was not built.
fn dashboard(directory: &Path, out: &Path) -> Result<String, Box<dyn Error>> {
    let index = directory.join(INDEX);
    if !index.is_file() {
        return Ok("&[]".to_owned());
    }
    let mut files = vec![("index.html".to_owned(), index)];
    for entry in fs::read_dir(directory.join("app/assets"))? {
        let path = entry?.path();
        let name = path.file_name().ok_or("a file without a name")?;
        let name = text(Path::new(name))?.to_owned();
        if !is_asset(&name) {
            let wanted = "<name>-<hash>.<extension> with a hash of 8 letters and digits or more";
            return Err(format!("app/assets/{name}: expected {wanted}").into());
        }
        files.push((name, path));
    }
    // The order in a directory differs between file systems.
    files.sort();
    let mut code = String::from("&[");
    for (name, path) in files {
        let compressed = out.join(format!("{name}.gz"));
        // The header of the format has a time, which is zero here: the same sources result in the
        // same program.
        let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
        encoder.write_all(&fs::read(&path)?)?;
        fs::write(&compressed, encoder.finish()?)?;
        let (path, compressed) = (text(&path)?, text(&compressed)?);
        write!(
            code,
            "({name:?}, include_bytes!({path:?}) as &[u8], include_bytes!({compressed:?}) as &[u8]),"
        )?;
    }
    code.push(']');
    Ok(code)
}

/// True if the name contains a hash of the contents, so that browsers may keep the file forever.
fn is_asset(name: &str) -> bool {
    let Some((stem, extension)) = name.rsplit_once('.') else {
        return false;
    };
    let Some((name, hash)) = stem.rsplit_once('-') else {
        return false;
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    EXTENSIONS.contains(&extension)
        && !name.is_empty()
        && name.bytes().all(is_plain)
        && hash.len() >= 8
        && hash.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The extensions whose media types the pages have.
const EXTENSIONS: [&str; 7] = ["css", "js", "json", "png", "svg", "txt", "woff2"];

fn text(path: &Path) -> Result<&str, Box<dyn Error>> {
    let text = path.to_str();
    text.ok_or_else(|| "the path of the target directory is not UTF-8".into())
}
