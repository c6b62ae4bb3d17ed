//! Paths under a path boundary (ED-7).

/// A path in the one form that is judged and forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath(String);

impl NormalPath {
    /// Normalises the path of a request target (without its query), or refuses it because an
    /// upstream could read it in another way than we do.
    pub fn parse(raw_target_path: &str) -> Result<Self, PathRefusal> {
        let _ = raw_target_path;
        Err(PathRefusal::NotAPath)
    }

    /// What was judged; exactly this is forwarded.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a path cannot be judged. For the log; the caller gets 403 `insufficient_scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathRefusal {
    /// `*`, an empty path, or one that does not begin with a slash.
    #[error("the target is not a path")]
    NotAPath,
}
