//! The limit of open files and sockets of this process.

/// Raises the soft limit to the hard limit. The soft limit exists for programs that use `select`,
/// but a process that carries streams needs two or more descriptors for each.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit of open files could not be raised");
    }
}

/// This system has no such limit.
#[cfg(not(unix))]
pub(crate) fn raise_limit() {}
