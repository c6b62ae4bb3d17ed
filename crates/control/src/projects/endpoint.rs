//! The endpoint of a project, which identifies it in host names: eight lower-case hex digits.

use std::fmt;
use std::str::FromStr;

/// A project endpoint: `<endpoint>.<cluster domain>` is the project's engine. It is random, so that
/// it reveals nothing. It is not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectEndpoint([u8; 8]);

impl ProjectEndpoint {
    /// Creates an endpoint from random bytes.
    pub fn new(random: [u8; 4]) -> Self {
        let mut text = [0; 8];
        // Fails only for a text of another length.
        hex::encode_to_slice(random, &mut text).ok();
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // The bytes are always hex digits.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for ProjectEndpoint {
    type Err = BadEndpoint;

    fn from_str(given: &str) -> Result<Self, BadEndpoint> {
        let text: [u8; 8] = given.as_bytes().try_into().map_err(|_| BadEndpoint)?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.iter().all(is_digit) {
            Ok(Self(text))
        } else {
            Err(BadEndpoint)
        }
    }
}

impl fmt::Display for ProjectEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ProjectEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not eight lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected eight lower-case hex digits")]
pub struct BadEndpoint;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_eight_lower_case_hex_digits() {
        let endpoint = ProjectEndpoint::new([0xe7, 0xe8, 0xa7, 0x32]);
        assert_eq!(endpoint.as_str(), "e7e8a732");
        assert_eq!("e7e8a732".parse(), Ok(endpoint));
        assert_eq!(ProjectEndpoint::new([0, 15, 160, 255]).as_str(), "000fa0ff");
        for bad in [
            "",
            "e7e8a73",
            "e7e8a7320",
            "E7E8A732",
            "g7e8a732",
            "e7e8a73ü",
        ] {
            assert_eq!(bad.parse::<ProjectEndpoint>(), Err(BadEndpoint), "{bad}");
        }
    }
}
