//! How many files and sockets this process may have open.

/// Raises the soft limit to the hard one: the soft one is there for programs that use `select`,
/// and a process that carries streams needs two or more descriptors for each.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// There is no such limit here.
#[cfg(not(unix))]
pub(crate) fn raise_limit() {}
