//! Compact JWS (RFC 7515 section 7.1), limited to the accepted forms.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use types::json::{self, Limits};

use crate::refusal::TokenRefusal;
use crate::token::MAX_TOKEN_BYTES;

/// A parsed token, not verified.
pub(crate) struct Compact<'a> {
    /// The signed part: header and payload in their original encoding.
    pub(crate) signed: &'a str,
    pub(crate) header: Map<String, Value>,
    payload: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

impl<'a> Compact<'a> {
    pub(crate) fn parse(token: &'a str) -> Result<Self, TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefusal::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenRefusal::Form)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenRefusal::Form)?;
        // A further dot stays in the payload, where it is invalid base64url.
        let [header, payload, signature] = [header, payload, signature].map(part);
        let (header, payload, signature) = (header?, payload?, signature?);
        Ok(Self {
            signed,
            header: object(&header).ok_or(TokenRefusal::Header("not a JSON object"))?,
            payload,
            signature,
        })
    }

    /// The claims. Only to be read after the signature was verified.
    pub(crate) fn claims(&self) -> Option<Map<String, Value>> {
        object(&self.payload)
    }

    /// The algorithm and the key id of the header, after checking that the header contains no
    /// embedded key and no extension.
    pub(crate) fn key_hint(&self) -> Result<(&str, Option<&str>), TokenRefusal> {
        // RFC 7519 section 5.1 and RFC 9068 section 2.1; other types are other documents.
        self.key_hint_of(|given| {
            given.is_none_or(|given| {
                let short = given.strip_prefix("application/").unwrap_or(given);
                short.eq_ignore_ascii_case("jwt") || short.eq_ignore_ascii_case("at+jwt")
            })
        })
    }

    /// As [`Self::key_hint`], for a document whose `typ` is of this kind.
    pub(crate) fn key_hint_of(
        &self,
        is_type: impl FnOnce(Option<&str>) -> bool,
    ) -> Result<(&str, Option<&str>), TokenRefusal> {
        if let Some(name) = FORBIDDEN_IN_HEADER
            .into_iter()
            .find(|name| self.header.contains_key(*name))
        {
            return Err(TokenRefusal::Header(name));
        }
        let text = |name: &'static str| match self.header.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(TokenRefusal::Header(name)),
        };
        if !is_type(text("typ")?) {
            return Err(TokenRefusal::Header("typ"));
        }
        let algorithm = text("alg")?.ok_or(TokenRefusal::Header("alg"))?;
        Ok((algorithm, text("kid")?))
    }
}

/// Canonical base64url without padding: each byte string has one spelling. Otherwise a revocation
/// list of digests could be bypassed.
fn part(text: &str) -> Result<Vec<u8>, TokenRefusal> {
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| TokenRefusal::Form)?;
    if bytes.is_empty() {
        Err(TokenRefusal::Form)
    } else {
        Ok(bytes)
    }
}

fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match json::parse(bytes, JSON_LIMITS) {
        Ok(Value::Object(members)) => Some(members),
        _ => None,
    }
}

/// Extensions that must be understood (RFC 7515 section 4.1.11, RFC 7797), keys and addresses of
/// keys inside the token (RFC 7515 section 4.1.2 to 4.1.8), and encryption (RFC 7516).
const FORBIDDEN_IN_HEADER: [&str; 11] = [
    "crit", "b64", "jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256", "enc", "zip", "cty",
];

const JSON_LIMITS: Limits = Limits {
    bytes: MAX_TOKEN_BYTES,
    depth: 40,
};
