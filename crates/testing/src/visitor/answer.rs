//! A response as a visitor received it.

/// A response, in either version of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedResponse {
    /// The status.
    pub status: u16,
    /// Names in lower case, values as text.
    pub headers: Vec<(String, String)>,
    /// The payload, as far as it arrived.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Vec<(String, String)>,
    /// True if the body is complete: with its announced length or its last chunk. False for a body
    /// that ends with the connection, because it may be truncated.
    pub is_complete: bool,
}

impl ReceivedResponse {
    /// The value of the first field with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!(
                "{} without JSON: {error}: {}",
                self.status,
                self.body.escape_ascii()
            )
        })
    }
}

/// Reads `name: value` lines.
pub(super) fn pairs(lines: &str) -> Vec<(String, String)> {
    let lines = lines.split("\r\n").filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect()
}
