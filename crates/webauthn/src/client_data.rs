//! Client data: the browser's description of the requesting page (Web Authentication level 3,
//! section 5.8.1).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;
use types::json::{self, Limits};

use crate::CeremonyError;

/// Client data in which each required member was present exactly once.
#[derive(Clone, Debug)]
pub(crate) struct ClientData {
    pub(crate) purpose: String,
    pub(crate) challenge: Vec<u8>,
    pub(crate) origin: String,
}

impl ClientData {
    /// Parses client data. A page inside a page of another origin is refused, because pages of the
    /// platform are never framed. Unknown members are ignored, as the specification requires.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, CeremonyError> {
        let data = json::parse(bytes, LIMITS).map_err(|_| MALFORMED)?;
        let text = |name: &str| {
            let text = data.get(name).and_then(Value::as_str);
            text.map(str::to_owned).ok_or(MALFORMED)
        };
        if !matches!(data.get("crossOrigin"), None | Some(Value::Bool(false)))
            || data.get("topOrigin").is_some()
        {
            return Err(CeremonyError(
                "the requesting page was framed by another origin",
            ));
        }
        let challenge = BASE64_URL_SAFE_NO_PAD
            .decode(text("challenge")?)
            .map_err(|_| MALFORMED)?;
        Ok(Self {
            purpose: text("type")?,
            challenge,
            origin: text("origin")?,
        })
    }
}

const MALFORMED: CeremonyError = CeremonyError("the client data is malformed");

/// Browsers write a few hundred bytes without nesting; the limits leave some space for future
/// members.
const LIMITS: Limits = Limits {
    bytes: 8 * 1024,
    depth: 4,
};
