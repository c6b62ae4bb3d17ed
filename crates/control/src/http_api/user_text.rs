//! Validation of names and descriptions that users choose.

use api::control::{MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS};

use crate::http_api::problem::{HandlerResult, bad};

/// An untrusted text for use in a mail or inside another line. Each invisible character becomes a
/// space.
pub(crate) fn printable(text: &str) -> String {
    let plain = |letter: char| if is_invisible(letter) { ' ' } else { letter };
    text.chars().map(plain).collect()
}

/// True for characters that are invisible or change how their neighbours are displayed: control
/// characters, line separators, marks of direction (Unicode Standard Annex 9), joiners, fillers,
/// tags. With them a name can look like another one, or change the text around it.
pub(crate) fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Validates the name in the field `name`. White space around it is removed.
pub(crate) fn validate_name(given: &str) -> HandlerResult<String> {
    let name = given.trim();
    let length = name.chars().count();
    if !(1..=MAX_NAME_CHARS).contains(&length) || name.chars().any(is_invisible) {
        let detail =
            format!("a name must have 1 to {MAX_NAME_CHARS} characters, without invisible ones");
        return Err(bad("name", detail));
    }
    Ok(name.to_owned())
}

/// Validates the description in the field `description`, which may have several lines.
pub(crate) fn validate_description(given: &str) -> HandlerResult<String> {
    let text = given.trim();
    let is_odd = |letter: char| letter.is_control() && letter != '\n';
    if text.chars().count() > MAX_DESCRIPTION_CHARS || text.chars().any(is_odd) {
        let detail = format!("a description must have at most {MAX_DESCRIPTION_CHARS} characters");
        return Err(bad("description", detail));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_invisible_characters() {
        for good in [
            "Ada",
            " Ada Lovelace ",
            "\u{5d0}\u{5d3}\u{5d4}",
            "Zoë 🦀",
            "李",
        ] {
            assert!(validate_name(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " ",
            "a\nb",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200b}b",
            "a\u{2028}b",
            "\u{feff}a",
            "a\u{ad}b",
            "\u{3164}",
            "a\u{e0041}b",
            "a\u{200f}",
        ] {
            assert!(validate_name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(printable("a\u{202e}b\r\nc"), "a b  c");
    }
}
