//! Embeds the web terminal in the program, if it was fetched.
//!
//! `cargo xtask web` puts xterm.js and its licence into `web` below the target directory; the pages
//! serve them. They are never part of the sources. The pages of a build without them report that, so that the
//! program builds without Node.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Files that the pages serve, by their name in the directory.
const FILES: [&str; 4] = [
    "xterm.mjs",
    "addon-fit.mjs",
    "xterm.css",
    "LICENSE-xterm.txt",
];

fn main() -> Result<(), Box<dyn Error>> {
    let directory = directory()?;
    println!("cargo::rerun-if-env-changed=SVC_WEB_DIR");
    println!("cargo::rerun-if-changed={}", directory.display());
    let present = FILES.iter().all(|name| directory.join(name).is_file());
    let mut code = String::from("[");
    for name in FILES.iter().filter(|_| present) {
        let path = directory.join(name);
        let path = path
            .to_str()
            .ok_or("the path of the target directory is not UTF-8")?;
        write!(code, "({name:?}, include_bytes!({path:?}) as &[u8]),")?;
    }
    code.push(']');
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("web.rs"), format!("&{code}"))?;
    Ok(())
}

/// The directory of the files: `SVC_WEB_DIR`, or `web` below the target directory. The latter is
/// created if it is missing, because cargo would rebuild each time for a missing directory.
fn directory() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(given) = env::var_os("SVC_WEB_DIR") {
        let given = PathBuf::from(given);
        if let Some(missing) = FILES.iter().find(|name| !given.join(name).is_file()) {
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
