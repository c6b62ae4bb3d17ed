//! Targets of redirects that the engine sealed.

use super::seals::Seals;

/// Sealed targets of redirects. The edge only redirects to targets that it sealed for this host.
pub(super) struct RedirectTarget;

impl RedirectTarget {
    /// Seals path and query together with a word that states the purpose. If the target is longer
    /// than `max_bytes`, its query is removed, or it is replaced by `/`.
    pub(super) fn seal(
        seals: &Seals,
        host: &str,
        word: &str,
        target: &str,
        max_bytes: usize,
    ) -> Option<String> {
        let path = target.split('?').next().unwrap_or_default();
        let shorter = [target, path, "/"];
        let target = shorter.into_iter().find(|it| it.len() <= max_bytes)?;
        seals.seal(host, format!("{word} {target}").as_bytes())
    }

    /// Returns the word and the target.
    pub(super) fn open(seals: &Seals, host: &str, sealed: &str) -> Option<(String, String)> {
        let text = String::from_utf8(seals.open(host, sealed)?).ok()?;
        let (word, target) = text.split_once(' ')?;
        target
            .starts_with('/')
            .then(|| (word.to_owned(), target.to_owned()))
    }
}
