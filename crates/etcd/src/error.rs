//! Errors of the store.

use tonic::{Code, Status};

/// The reason why the store did not do what was requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Too few members are reachable from each other.
    #[error(
        "the cluster's store (etcd) has no quorum; try again when most of its members are back"
    )]
    QuorumLost,
    /// The store has the NOSPACE alarm.
    #[error(
        "the cluster's store (etcd) has no space left (NOSPACE); compact and defragment it, then \
         disarm the alarm"
    )]
    NoSpace,
    /// The store does not accept the user or its permissions.
    #[error("the cluster's store (etcd) refuses this engine: {0}")]
    Unauthorized(String),
    /// No member can be reached.
    #[error("the cluster's store (etcd) is not reachable: {0}")]
    Unreachable(String),
    /// A member accepted a request and did not respond in time.
    #[error("the cluster's store (etcd) did not respond in time")]
    Slow,
    /// The lease of the request has ended.
    #[error("the engine's lease at the cluster's store (etcd) has ended; it is being renewed")]
    LeaseEnded,
    /// The requested revisions are not stored any more.
    #[error("the cluster's store (etcd) has compacted the requested changes")]
    Compacted,
    /// The store has an older state than the engine has read.
    #[error("an older state of the cluster's store (etcd) was restored")]
    Restored,
    /// A response that the API does not define.
    #[error("unexpected response of the cluster's store (etcd): {0}")]
    Unexpected(String),
}

impl StoreError {
    /// True if the same request can succeed without an operator.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Unauthorized(_) | Self::Unexpected(_))
    }

    /// The reason for agents, without addresses, files and texts of the store.
    pub fn summary(&self) -> String {
        match self {
            Self::Unauthorized(_) => "the cluster's store (etcd) refuses this engine".to_owned(),
            Self::Unreachable(_) => "the cluster's store (etcd) is not reachable".to_owned(),
            Self::Unexpected(_) => {
                "the response of the cluster's store (etcd) is unexpected".to_owned()
            }
            Self::QuorumLost
            | Self::NoSpace
            | Self::Slow
            | Self::LeaseEnded
            | Self::Compacted
            | Self::Restored => self.to_string(),
        }
    }

    /// True if another member may do what this one did not do.
    pub(crate) fn tries_next_member(&self) -> bool {
        matches!(self, Self::QuorumLost | Self::Unreachable(_) | Self::Slow)
    }

    pub(crate) fn of_status(status: &Status) -> Self {
        let text = status.message();
        let has = |part: &str| text.contains(part);
        if has("database space exceeded") {
            Self::NoSpace
        } else if has("no leader") || has("not leader") || has("leader changed") {
            Self::QuorumLost
        } else if has("requested lease not found") {
            Self::LeaseEnded
        } else if has("has been compacted") {
            Self::Compacted
        } else if has("invalid auth token") || has("auth store is old") {
            // The next connection gets a new token.
            Self::Unreachable(text.to_owned())
        } else if has("request timed out") || has("too many requests") {
            Self::Slow
        } else if has("authentication failed") || has("user name is empty") {
            Self::Unauthorized(text.to_owned())
        } else {
            Self::of_code(status.code(), text)
        }
    }

    fn of_code(code: Code, text: &str) -> Self {
        match code {
            Code::Unauthenticated | Code::PermissionDenied => Self::Unauthorized(text.to_owned()),
            Code::DeadlineExceeded => Self::Slow,
            // A connection that ends has no status of the server.
            Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::Internal
            | Code::ResourceExhausted => Self::Unreachable(text.to_owned()),
            _ => Self::Unexpected(format!("{code:?}: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_no_text_of_the_store() {
        let text = || "https://etcd-1:2379".to_owned();
        for error in [
            StoreError::Unauthorized(text()),
            StoreError::Unreachable(text()),
            StoreError::Unexpected(text()),
        ] {
            assert!(error.to_string().contains("etcd-1"));
            assert!(!error.summary().contains("etcd-1"), "{error:?}");
        }
        assert_eq!(StoreError::Slow.summary(), StoreError::Slow.to_string());
    }

    #[test]
    fn errors_of_etcd_have_their_meaning() {
        let of = |code, text: &str| StoreError::of_status(&Status::new(code, text));
        for (code, text, error) in [
            (
                Code::Unavailable,
                "etcdserver: no leader",
                StoreError::QuorumLost,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                StoreError::NoSpace,
            ),
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                StoreError::LeaseEnded,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                StoreError::Compacted,
            ),
            (
                Code::Unavailable,
                "etcdserver: request timed out",
                StoreError::Slow,
            ),
        ] {
            assert_eq!(of(code, text), error);
            assert!(error.is_retryable());
        }
        for (code, text) in [
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
            ),
            (Code::PermissionDenied, "etcdserver: permission denied"),
        ] {
            let error = of(code, text);
            assert_eq!(error, StoreError::Unauthorized(text.to_owned()));
            assert!(!error.is_retryable() && !error.tries_next_member());
        }
        assert!(of(Code::Unauthenticated, "etcdserver: invalid auth token").tries_next_member());
    }
}
