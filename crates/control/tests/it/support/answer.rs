//! The responses of a platform, and assertions on them.

use http::HeaderMap;
use serde_json::Value;

/// The response to a request of a test.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) location: Option<String>,
    pub(crate) text: String,
}

/// Compares all parts except the caller's remaining rate limit.
impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        let parts = |answer: &Self| {
            let mut headers = answer.headers.clone();
            headers.remove("ratelimit");
            (
                answer.status,
                headers,
                answer.location.clone(),
                answer.text.clone(),
            )
        };
        parts(self) == parts(other)
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The body of an answer with this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if self.text.is_empty() {
            return Value::Null;
        }
        self.json()
    }

    /// The status and the code of a problem.
    #[track_caller]
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json");
        let code = self.json()["code"].as_str().unwrap().to_owned();
        (self.status, code)
    }

    /// The code and the field of a problem with this status.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> (String, Option<String>) {
        assert_eq!(self.status, status, "{}", self.text);
        let field = self.json()["field"].as_str().map(str::to_owned);
        (self.problem().1, field)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The text between two pieces of the page.
    #[track_caller]
    pub(crate) fn between(&self, before: &str, after: &str) -> &str {
        let start = self.text.find(before).expect(before) + before.len();
        let rest = &self.text[start..];
        &rest[..rest.find(after).expect(after)]
    }
}
