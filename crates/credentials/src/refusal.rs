//! Reasons for which tokens are refused.

/// Reason why a token was refused. Only for the log: no caller receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// More than [`MAX_TOKEN_BYTES`](crate::MAX_TOKEN_BYTES).
    #[error("the token is too long")]
    TooLong,
    /// Not three parts of canonical base64url.
    #[error("not a compact JWS")]
    Form,
    /// A header member that is missing, of a wrong type or not allowed.
    #[error("header: {0}")]
    Header(&'static str),
    /// The signature was not made by any trusted key with this algorithm.
    #[error("no trusted key made the signature")]
    Signature,
    /// The payload is not a strict JSON object.
    #[error("the payload is no JSON object")]
    Payload,
    /// The `type` is missing or unknown.
    #[error("unknown token type")]
    UnknownType,
    /// A claim of the wrong type or form.
    #[error("claim: {0}")]
    Claim(&'static str),
    /// Neither `userId` nor `clientId`.
    #[error("the token names no user and no application")]
    NoIdentity,
    /// Past its `exp`.
    #[error("expired")]
    Expired,
    /// Before its `nbf` or `iat`.
    #[error("not valid yet")]
    NotYetValid,
}
