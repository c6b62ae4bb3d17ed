//! Names of types.
//!
//! A type is a noun that says what the thing is. A bare participle (`Held`), a pronoun
//! or a function word (`At`, `Over`) makes a reader open the file to learn what is meant.

use std::collections::BTreeMap;

use super::sources::has_extension;

pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let code = files
        .iter()
        .filter(|(path, _)| has_extension(path, &["rs"]));
    let bare = code.flat_map(|(path, text)| {
        let names = text.lines().filter_map(defined_type);
        let bare = names.filter(|name| is_bare(name));
        bare.map(move |name| format!("{path}: `{name}` does not say what the type is"))
    });
    bare.collect()
}

/// The type that a line of code starts to define.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub"));
    let is_definition = matches!(
        words.next()?,
        "struct" | "enum" | "trait" | "type" | "union"
    );
    let rest = words.next().filter(|_| is_definition)?;
    rest.split(|letter: char| !letter.is_alphanumeric()).next()
}

/// True for a single word that is a participle, a verb, an adjective, a pronoun or a function word.
fn is_bare(name: &str) -> bool {
    let mut letters = name.chars();
    let is_one_word =
        letters.next().is_some_and(char::is_uppercase) && letters.all(char::is_lowercase);
    if !is_one_word || NOUNS.contains(&name) {
        return false;
    }
    let is_participle = name.ends_with("ed") || name.ends_with("ing");
    is_participle || BARE.contains(&name)
}

/// Irregular participles, verbs, adjectives, pronouns and function words.
const BARE: &[&str] = &[
    "About",
    "Above",
    "Again",
    "All",
    "Alone",
    "Any",
    "Anyone",
    "Apart",
    "Ask",
    "At",
    "Away",
    "Back",
    "Bad",
    "Basic",
    "Before",
    "Begun",
    "Behind",
    "Beside",
    "Between",
    "Born",
    "Both",
    "Bought",
    "Break",
    "Broken",
    "Brought",
    "Built",
    "By",
    "Come",
    "Cut",
    "Does",
    "Done",
    "Down",
    "Due",
    "Each",
    "Either",
    "Else",
    "Everybody",
    "Everything",
    "Expose",
    "Found",
    "From",
    "Given",
    "Gone",
    "Good",
    "Held",
    "Here",
    "How",
    "Identify",
    "In",
    "Include",
    "Inflate",
    "Instead",
    "Into",
    "Is",
    "It",
    "Join",
    "Kept",
    "Known",
    "Late",
    "Left",
    "Lent",
    "Live",
    "Lost",
    "Made",
    "Many",
    "May",
    "Met",
    "Mine",
    "Nobody",
    "Not",
    "Nothing",
    "Now",
    "Nowhere",
    "Of",
    "Off",
    "On",
    "Once",
    "Onward",
    "Other",
    "Others",
    "Ours",
    "Out",
    "Over",
    "Own",
    "Past",
    "Purgeable",
    "Put",
    "Quiet",
    "Raw",
    "Ready",
    "Recent",
    "Respond",
    "Reusable",
    "Reveal",
    "Said",
    "Say",
    "Seen",
    "Sent",
    "Serve",
    "Shown",
    "Slow",
    "Some",
    "Somebody",
    "Something",
    "Spare",
    "Split",
    "Stale",
    "Strict",
    "Taken",
    "Tell",
    "That",
    "Them",
    "Then",
    "There",
    "They",
    "This",
    "To",
    "Told",
    "Torn",
    "Unavailable",
    "Under",
    "Until",
    "Up",
    "Verbatim",
    "Visible",
    "Wake",
    "We",
    "What",
    "When",
    "Where",
    "Who",
    "Whole",
    "Why",
    "With",
    "Without",
    "Woken",
    "Worn",
    "Wrap",
    "Written",
    "You",
];

/// Nouns that end like a participle, and names that a published interface fixes.
const NOUNS: &[&str] = &[
    "Billing",
    "Binding",
    "Encoding",
    "Feed",
    "Framing",
    "Keyring",
    "Listing",
    "Mapping",
    "Paging",
    "Ping",
    "Recording",
    "Reporting",
    "Setting",
    "Speed",
    "String",
    "Timing",
    "Warning",
    // Components of the OpenAPI document.
    "Carried",
    "Relayed",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_participle_is_no_name_of_a_type() {
        let file = "mod m {\n    pub(crate) struct Held;\n}\nenum Nobody {}\ntype Waiting = u8;\n\
                    struct HeldSlot;\nstruct Recording;\nstruct Id;\ntrait Serve {}";
        let files = BTreeMap::from([("a.rs".to_owned(), file.to_owned())]);
        assert_eq!(
            check(&files),
            ["Held", "Nobody", "Waiting", "Serve"]
                .map(|name| format!("a.rs: `{name}` does not say what the type is"))
        );
    }
}
