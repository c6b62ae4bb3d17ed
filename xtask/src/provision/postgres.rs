//! Location of PostgreSQL's server programs. Debian does not put them on `PATH`, but in a directory
//! per version.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The newest installed version that the store supports.
pub(super) fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<u32> = versions
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|version| *version >= OLDEST)
        .collect();
    versions.sort_unstable();
    let debian = versions
        .into_iter()
        .rev()
        .map(|version| Path::new(DEBIAN).join(version.to_string()).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    debian
        .chain(env::split_paths(&path))
        .find(|directory| is_complete(directory))
}

/// True if it has the programs that the tests run: for a new cluster, and the server.
fn is_complete(directory: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres"]
        .iter()
        .all(|program| directory.join(program).is_file())
}

const DEBIAN: &str = "/usr/lib/postgresql";
/// The oldest tested version.
const OLDEST: u32 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_only_the_client_is_not_enough() {
        let directory = env::temp_dir().join(format!("svc-xtask-pg-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for program in ["initdb", "pg_ctl"] {
            fs::write(directory.join(program), "").unwrap();
        }
        assert!(!is_complete(&directory));
        fs::write(directory.join("postgres"), "").unwrap();
        assert!(is_complete(&directory));
        fs::remove_dir_all(&directory).unwrap();
    }
}
