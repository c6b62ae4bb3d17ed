//! Suggestions for misspelled words.

/// The candidate that is most similar to a word, if it is similar enough.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::normalized_damerau_levenshtein(word, candidate),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness > MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// Similarity threshold. Swapped letters or a missing letter are above it. A different word with
/// the same prefix is below it.
const MIN_SIMILARITY: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_match_and_other_words_do_not() {
        let known = ["tunnel.created", "tunnel.deleted", "state.initial"];
        assert_eq!(nearest("tunel.created", known), Some("tunnel.created"));
        assert_eq!(nearest("inital", ["initial"]), Some("initial"));
        assert_eq!(nearest("webhook", known), None);
        assert_eq!(
            nearest("tunnel.all", ["tunnel.tunnels.create-delete"]),
            None
        );
        assert_eq!(nearest("", known), None);
    }
}
