//! How many files and sockets this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::debug;

/// Raises the soft limit to the hard one: the soft one is there for programs that use `select`,
/// and a process that carries streams needs two or more descriptors for each.
pub(crate) fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        debug!(%error, "the limit of open files stays as it is");
    }
}
