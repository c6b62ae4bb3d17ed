//! What somebody probably meant.

/// The candidate that a word was probably meant to be, if one is near enough.
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
        .filter(|(likeness, _)| *likeness > NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// Two letters that changed places or a missing one are nearer; another word is not, even if it
/// begins alike.
const NEAR: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
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
