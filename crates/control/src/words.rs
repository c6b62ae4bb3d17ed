//! Names and descriptions that people give to what they make.

use api::control::{MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS};

use crate::problem::{Answer, bad};

/// A text that somebody chose, for a mail or a line of another: without line breaks and other control
/// characters.
pub(crate) fn printable(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(plain).collect()
}

/// The name in the field `name`, without the white space around it.
pub(crate) fn name(given: &str) -> Answer<String> {
    let name = given.trim();
    let length = name.chars().count();
    if !(1..=MAX_NAME_CHARS).contains(&length) || name.chars().any(char::is_control) {
        let detail = format!("a name has 1 to {MAX_NAME_CHARS} characters, and no control ones");
        return Err(bad("name", detail));
    }
    Ok(name.to_owned())
}

/// The description in the field `description`, of any number of lines.
pub(crate) fn description(given: &str) -> Answer<String> {
    let text = given.trim();
    let is_odd = |letter: char| letter.is_control() && letter != '\n';
    if text.chars().count() > MAX_DESCRIPTION_CHARS || text.chars().any(is_odd) {
        let detail = format!("a description has at most {MAX_DESCRIPTION_CHARS} characters");
        return Err(bad("description", detail));
    }
    Ok(text.to_owned())
}
