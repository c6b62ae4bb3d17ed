//! Context of a session, which its opener states in the query of the address.

use api::webtty::Context;
use types::form::{BadForm, Form};
use types::problem::Problem;
use types::webtty::SessionMode;

/// Context that the opener stated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SessionContext {
    pub(crate) mode: Option<SessionMode>,
    pub(crate) group_id: Option<String>,
    pub(crate) context: Option<Context>,
}

/// Errors in a stated context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContextError {
    #[error(transparent)]
    Form(#[from] BadForm),
    #[error("`{0}` is not one of the allowed values")]
    Word(&'static str),
    #[error("`{0}` is longer than {MAX_TEXT} bytes, or contains control characters")]
    Text(&'static str),
}

impl From<ContextError> for Problem {
    fn from(bad: ContextError) -> Self {
        Self::invalid_request(bad.to_string())
    }
}

impl SessionContext {
    /// Parses a query. Parameters with other names are ignored: they may be for the server.
    ///
    /// # Errors
    /// [`ContextError`].
    pub(crate) fn read(query: &str) -> Result<Self, ContextError> {
        let mut form = Form::parse(query)?;
        let mode = form.take("session_mode").map(|mode| mode.parse());
        let mode = mode
            .transpose()
            .map_err(|_| ContextError::Word("session_mode"))?;
        let group_id = text(&mut form, "group_id")?;
        let context = Context {
            origin: word(&mut form, "origin", ORIGINS)?,
            origin_id: text(&mut form, "origin_id")?,
            purpose: text(&mut form, "purpose")?,
            initiator_kind: word(&mut form, "initiator_kind", INITIATORS)?,
            agent_name: text(&mut form, "agent_name")?,
            agent_version: text(&mut form, "agent_version")?,
            request_id: text(&mut form, "request_id")?,
            labels: None,
        };
        Ok(Self {
            mode,
            group_id,
            context: (context != Context::default()).then_some(context),
        })
    }
}

fn word(
    form: &mut Form,
    name: &'static str,
    words: &[&str],
) -> Result<Option<String>, ContextError> {
    let given = form.take(name);
    match &given {
        Some(given) if !words.contains(&given.as_str()) => Err(ContextError::Word(name)),
        _ => Ok(given),
    }
}

fn text(form: &mut Form, name: &'static str) -> Result<Option<String>, ContextError> {
    let given = form.take(name);
    let bad = |given: &String| given.len() > MAX_TEXT || given.chars().any(char::is_control);
    if given.as_ref().is_some_and(bad) {
        return Err(ContextError::Text(name));
    }
    Ok(given)
}

const ORIGINS: &[&str] = &["human", "agent", "api", "automation", "ci", "scheduled-job"];
const INITIATORS: &[&str] = &["user", "app", "agent", "service-account"];

/// Longest text: a sentence for people, or an id of another system.
const MAX_TEXT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_context_is_parsed_and_bounded() {
        let stated = SessionContext::read(
            "session_mode=interactive&origin=ci&purpose=a+b%21&x=y&group_id=g",
        );
        let stated = stated.unwrap();
        assert_eq!(stated.mode, Some(SessionMode::Interactive));
        assert_eq!(stated.group_id.as_deref(), Some("g"));
        let context = stated.context.unwrap();
        assert_eq!(context.origin.as_deref(), Some("ci"));
        assert_eq!(context.purpose.as_deref(), Some("a b!"));
        assert_eq!(SessionContext::read("").unwrap(), SessionContext::default());
        let long = format!("purpose={}", "x".repeat(MAX_TEXT + 1));
        for (query, bad) in [
            ("origin=mars", ContextError::Word("origin")),
            ("initiator_kind=cat", ContextError::Word("initiator_kind")),
            ("session_mode=loud", ContextError::Word("session_mode")),
            ("purpose=a%0ab", ContextError::Text("purpose")),
            (long.as_str(), ContextError::Text("purpose")),
            (
                "origin=ci&origin=ci",
                ContextError::Form(BadForm::Repeated("origin".to_owned())),
            ),
        ] {
            assert_eq!(SessionContext::read(query), Err(bad), "{query}");
        }
    }
}
