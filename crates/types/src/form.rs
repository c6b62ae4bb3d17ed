//! Strict parsing of forms and queries, as OAuth requires it (RFC 6749 section 3.1 and 3.2).
//!
//! Stricter than the crate `form_urlencoded`, which keeps broken escapes, replaces bytes that are not
//! UTF-8, and returns repeated names.

use std::collections::BTreeMap;
use std::fmt;

use crate::percent::escaped;
use crate::query_credential::percent_decode;

/// The parameters of a form or a query, each of which appears once. Two parsers could interpret a
/// repeated parameter differently, so every repeated name is refused.
#[derive(Default)]
pub struct Form(BTreeMap<String, String>);

impl Form {
    /// Parses `a=b&c=d`, percent-encoded UTF-8, with `+` for a space.
    ///
    /// # Errors
    /// A broken escape, invalid UTF-8, a repeated name, or more than [`MAX_PARAMETERS`].
    pub fn parse(text: &str) -> Result<Self, BadForm> {
        let mut parameters = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = decode(name).zip(decode(value)).ok_or(BadForm::Encoding)?;
            if parameters.contains_key(&name) {
                return Err(BadForm::Repeated(name.chars().take(64).collect()));
            }
            if parameters.len() == MAX_PARAMETERS {
                return Err(BadForm::TooMany);
            }
            parameters.insert(name, value);
        }
        Ok(Self(parameters))
    }

    /// True if the parameter is present, even without a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// True if `more` further parameters still fit.
    pub fn has_room_for(&self, more: usize) -> bool {
        self.0.len() + more <= MAX_PARAMETERS
    }

    /// Takes a parameter out. A parameter without a value counts as absent (RFC 6749 section 3.1).
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).filter(|value| !value.is_empty())
    }
}

/// Prints only the names, because some values are secrets.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Reason why a form is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadForm {
    /// A broken escape, or invalid UTF-8.
    #[error("the parameters are not encoded correctly")]
    Encoding,
    /// A repeated name, cut to 64 characters.
    #[error("{0:?} is repeated")]
    Repeated(String),
    /// More than [`MAX_PARAMETERS`].
    #[error("there are too many parameters")]
    TooMany,
}

/// OAuth has about two dozen parameters, and no request needs all of them.
pub const MAX_PARAMETERS: usize = 64;

/// Writes parameters as a query or form body that [`Form::parse`] can parse.
pub fn encode<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in parameters {
        if !text.is_empty() {
            text.push('&');
        }
        // A space is written as %20, which form and URI decoders both accept.
        text.extend(escaped(name).chain(["="]).chain(escaped(value)));
    }
    text
}

/// Decodes a name or a value; `None` for a broken escape or invalid UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let bytes = percent_decode(text.replace('+', " ").as_bytes())?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_taken_out_once() {
        let mut form = Form::parse("scope=a+b%20c&state=%C3%A4%26&empty=&bare&&x=1=2").unwrap();
        assert_eq!(form.take("scope").as_deref(), Some("a b c"));
        assert_eq!(form.take("scope"), None);
        assert_eq!(form.take("state").as_deref(), Some("ä&"));
        assert_eq!(form.take("x").as_deref(), Some("1=2"));
        assert_eq!((form.take("empty"), form.take("bare")), (None, None));
        assert!(!format!("{:?}", Form::parse("code=secret").unwrap()).contains("secret"));
    }

    #[test]
    fn ambiguous_forms_are_refused() {
        let repeated = |name: &str| BadForm::Repeated(name.to_owned());
        for (text, error) in [
            ("a=1&a=1", repeated("a")),
            ("a=1&%61=2", repeated("a")),
            ("a=&a=1", repeated("a")),
            ("a&a=1", repeated("a")),
            ("a=%", BadForm::Encoding),
            ("a=%4", BadForm::Encoding),
            ("a=%zz", BadForm::Encoding),
            ("a=%ff", BadForm::Encoding),
            ("%f=1", BadForm::Encoding),
        ] {
            assert_eq!(Form::parse(text).err(), Some(error), "{text}");
        }
        let many: Vec<_> = (0..=MAX_PARAMETERS)
            .map(|name| format!("p{name}"))
            .collect();
        assert_eq!(Form::parse(&many.join("&")).err(), Some(BadForm::TooMany));
        assert!(Form::parse(&many[1..].join("&")).is_ok());
    }

    proptest! {
        /// Written parameters can be parsed back, and contain only characters of a query.
        #[test]
        fn written_parameters_are_read_back(
            written in proptest::collection::btree_map("[^\\x00]{1,8}", "[^\\x00]{1,12}", 0..8)
        ) {
            let pairs = written.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let text = encode(pairs);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'));
            let mut form = Form::parse(&text).unwrap();
            for (name, value) in &written {
                prop_assert_eq!(form.take(name), Some(value.clone()));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,64}") {
            drop(Form::parse(&text));
        }
    }
}
