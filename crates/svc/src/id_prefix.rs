//! Ids that are given by their first characters, as in `svc credential revoke crd_01h4`.

use crate::{
    failure::{Code, Failure},
    output::plain,
};

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

/// The objects of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// The objects that were read.
    pub(crate) all: Vec<Candidate>,
    /// True if the list has more objects.
    pub(crate) is_truncated: bool,
}

impl FromIterator<Candidate> for Candidates {
    fn from_iter<I: IntoIterator<Item = Candidate>>(all: I) -> Self {
        Self {
            all: all.into_iter().collect(),
            is_truncated: false,
        }
    }
}

/// The complete id for `text`. A text that is not the start of an id, or of no candidate, is
/// returned unchanged: the server then reports the missing object. `candidates` is only awaited for
/// the start of an id. `kind` names the objects in the error.
pub(crate) async fn complete(
    kind: &str,
    text: &str,
    candidates: impl Future<Output = Result<Candidates, Failure>>,
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
/// There are several, which the error lists, or there may be others beyond the end of a truncated
/// list.
pub(crate) fn select(
    kind: &str,
    text: &str,
    candidates: Candidates,
) -> Result<Option<Candidate>, Failure> {
    let is_truncated = candidates.is_truncated;
    let mut matching: Vec<_> = candidates
        .all
        .into_iter()
        .filter(|candidate| candidate.id.starts_with(text))
        .collect();
    if let Some(exact) = matching.iter().position(|candidate| candidate.id == text) {
        return Ok(Some(matching.swap_remove(exact)));
    }
    // An object can be on two pages, if the list changes while it is read.
    matching.sort_by(|one, other| one.id.cmp(&other.id));
    matching.dedup_by(|one, other| one.id == other.id);
    if matching.len() < 2 {
        // The start of an id must not select an object by chance.
        if is_truncated {
            let message = format!("there are too many {kind} ids to find one by its start");
            return Err(ambiguous(&message).hint("give the complete id"));
        }
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
        "`{text}` is the start of several {kind} ids: {}",
        listed.join(", ")
    );
    Err(ambiguous(&message).hint("give more characters of the id"))
}

fn ambiguous(message: &str) -> Failure {
    Failure::new(Code::Usage, plain(message)).named("ambiguous_id")
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

    fn candidates(ids: &[&str]) -> Candidates {
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
        let twice = select("credential", "crd_02", candidates(&["crd_021", "crd_021"]));
        assert_eq!(twice.unwrap().unwrap().id, "crd_021");
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

    /// The objects that were not read may have the same start.
    #[test]
    fn a_truncated_list_selects_only_complete_ids() {
        let truncated = || Candidates {
            is_truncated: true,
            ..candidates(&["crd_01a", "crd_02"])
        };
        for text in ["crd_02", "crd_01a"] {
            let found = select("credential", text, truncated()).unwrap();
            assert_eq!(found.unwrap().id, text);
        }
        for text in ["crd_01", "crd_3"] {
            let failure = select("credential", text, truncated()).unwrap_err();
            assert_eq!(failure.name(), "ambiguous_id");
            assert!(
                failure.message().contains("too many credential ids"),
                "{failure}"
            );
        }
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
