//! Ids that are given by their first characters, as in `svc credential revoke crd_01h4`.

use crate::failure::{Code, Failure};

/// An object that an id can select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its id.
    pub(crate) id: String,
    /// The text by which people recognise it; it may be empty.
    pub(crate) name: String,
}

impl Candidate {
    /// Creates a candidate.
    pub(crate) fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
        }
    }
}

/// The complete id for `text`. A text that is not the start of an id, or of no candidate, is
/// returned unchanged: the server then reports the missing object. `candidates` is only awaited for
/// the start of an id. `kind` names the objects in the error.
pub(crate) async fn complete(
    kind: &str,
    text: &str,
    candidates: impl Future<Output = Result<Vec<Candidate>, Failure>>,
) -> Result<String, Failure> {
    if !is_prefix(text) {
        return Ok(text.to_owned());
    }
    let found = select(kind, text, candidates.await?)?;
    Ok(found.map_or_else(|| text.to_owned(), |found| found.id))
}

/// The only candidate whose id starts with `text`.
///
/// # Errors
/// There are several. The error lists them.
pub(crate) fn select(
    kind: &str,
    text: &str,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Result<Option<Candidate>, Failure> {
    let mut matching: Vec<_> = candidates
        .into_iter()
        .filter(|candidate| candidate.id.starts_with(text))
        .collect();
    if let Some(exact) = matching.iter().position(|candidate| candidate.id == text) {
        return Ok(Some(matching.swap_remove(exact)));
    }
    if matching.len() < 2 {
        return Ok(matching.pop());
    }
    let listed = matching.iter().take(MAX_LISTED).map(|candidate| {
        if candidate.name.is_empty() {
            candidate.id.clone()
        } else {
            format!("{} ({})", candidate.id, candidate.name)
        }
    });
    let mut listed: Vec<_> = listed.collect();
    match matching.len().saturating_sub(MAX_LISTED) {
        0 => {}
        more => listed.push(format!("and {more} more")),
    }
    let message = format!(
        "`{text}` is the start of several ids of {kind}s: {}",
        listed.join(", ")
    );
    Err(Failure::new(Code::Usage, crate::output::plain(&message))
        .named("ambiguous_id")
        .hint("give more characters of the id"))
}

/// True for the start of an id: the prefix of its kind, `_`, and at least one more character. A
/// kind alone does not select an object, even if there is only one.
pub(crate) fn is_prefix(text: &str) -> bool {
    let Some((kind, rest)) = text.split_once('_') else {
        return false;
    };
    let is_kind = kind.len() == 3 && kind.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    is_kind && (1..SUFFIX_LENGTH).contains(&rest.len()) && rest.bytes().all(is_id)
}

/// Characters of an id behind the prefix of its kind.
const SUFFIX_LENGTH: usize = 26;
/// Candidates in the error: they fit on a screen with their names.
const MAX_LISTED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(ids: &[&str]) -> Vec<Candidate> {
        ids.iter().map(|id| Candidate::new(*id, "name")).collect()
    }

    #[test]
    fn a_kind_alone_and_a_complete_id_are_no_prefix() {
        assert!(is_prefix("crd_0") && is_prefix("wts_01h455vb4pex5vsknk084sn02"));
        for text in [
            "",
            "crd",
            "crd_",
            "credential_0",
            "_01h4",
            "crd_01H4",
            "crd_a-b",
            "ada@example.com",
            "crd_01h455vb4pex5vsknk084sn02q",
        ] {
            assert!(!is_prefix(text), "{text}");
        }
    }

    #[test]
    fn a_prefix_selects_the_only_candidate() {
        let all = || candidates(&["crd_01a", "crd_01ab", "crd_02"]);
        let id = |text| select("credential", text, all()).map(|found| found.map(|found| found.id));
        assert_eq!(id("crd_02").unwrap().as_deref(), Some("crd_02"));
        assert_eq!(id("crd_01ab").unwrap().as_deref(), Some("crd_01ab"));
        // A complete id is not ambiguous.
        assert_eq!(id("crd_01a").unwrap().as_deref(), Some("crd_01a"));
        assert_eq!(id("crd_3").unwrap(), None);
        let failure = id("crd_0").unwrap_err();
        assert_eq!(failure.name(), "ambiguous_id");
        assert!(
            failure
                .message()
                .contains("crd_01a (name), crd_01ab (name)")
        );
    }

    #[test]
    fn the_list_of_candidates_is_bounded() {
        let ids: Vec<_> = (10..40).map(|number| format!("crd_{number}")).collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let failure = select("credential", "crd_", candidates(&ids)).unwrap_err();
        assert!(failure.message().ends_with(", and 22 more"), "{failure}");
        assert_eq!(failure.message().matches("crd_").count(), 1 + MAX_LISTED);
    }
}
