//! Takes in the terminal of the pages, where somebody has fetched it.
//!
//! `cargo xtask web` puts xterm.js and its licence into `web` below the target directory; the pages
//! serve them. They are never part of the sources, and a build without them is one whose pages say
//! so: nobody needs Node to build the program.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What the pages serve, by the name in the directory.
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
            .ok_or("the way to the target directory is no UTF-8")?;
        write!(code, "({name:?}, include_bytes!({path:?}) as &[u8]),")?;
    }
    code.push(']');
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("web.rs"), format!("&{code}"))?;
    Ok(())
}

/// Where the files are: what `SVC_WEB_DIR` names, or `web` below the target directory. That one is
/// made where it is not there, because cargo looks at a directory that it was told of, and would
/// build again each time for one that is missing.
fn directory() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(given) = env::var_os("SVC_WEB_DIR") {
        let given = PathBuf::from(given);
        if let Some(missing) = FILES.iter().find(|name| !given.join(name).is_file()) {
            return Err(format!("SVC_WEB_DIR has no {missing}: `cargo xtask web` makes it").into());
        }
        return Ok(given);
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Cargo marks its target directory, wherever that is.
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
