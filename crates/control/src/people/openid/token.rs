//! ID tokens and their validation: OpenID Connect Core 1.0 section 3.1.3.7.

use jiff::Timestamp;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::secrets::FlowSecrets;

/// Reasons that a token is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The key is unknown. It may be a new one.
    #[error("the token was not signed with a known key")]
    UnknownKey,
    /// A claim has the wrong value. The operator sees which one, and the reason.
    #[error("the token is refused: claim {claim}: {why}")]
    Claim {
        claim: &'static str,
        why: &'static str,
    },
    /// Any other reason, as text for the operator.
    #[error("the token is refused: {0}")]
    Refused(&'static str),
}

/// The keys of a provider.
#[derive(Debug)]
pub struct KeySet(Vec<Jwk>);

impl KeySet {
    /// Selects the keys of a JWKS document (RFC 7517) that have a supported form.
    pub(super) fn read(document: JwksDocument) -> Self {
        let keys = document.keys.into_iter().take(MAX_KEYS);
        Self(
            keys.filter_map(|key| serde_json::from_value(key).ok())
                .collect(),
        )
    }

    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<&Jwk, TokenError> {
        let usable = |key: &&Jwk| {
            is_for(key, algorithm) && (kid.is_none() || key.common.key_id.as_deref() == kid)
        };
        let mut found = self.0.iter().filter(usable);
        let key = found.next().ok_or(TokenError::UnknownKey)?;
        // Section 10.1: if there are several keys, the token names one.
        if kid.is_none() && found.next().is_some() {
            return Err(TokenError::Refused(
                "it does not name the key that signed it",
            ));
        }
        Ok(key)
    }
}

/// A JWKS document.
#[derive(Debug, Deserialize)]
pub(super) struct JwksDocument {
    keys: Vec<Value>,
}

/// Claims of an ID token.
#[derive(Debug, Deserialize)]
pub struct IdClaims {
    iss: String,
    /// The provider's identifier of the user.
    pub sub: String,
    #[serde(deserialize_with = "one_or_many")]
    aud: Vec<String>,
    azp: Option<String>,
    exp: i64,
    iat: i64,
    nbf: Option<i64>,
    nonce: Option<String>,
    /// Time of the user's last authentication.
    pub auth_time: Option<i64>,
    /// Name and address of the user.
    #[serde(flatten)]
    pub profile: Profile,
}

/// Profile of a user, from the ID token or the userinfo endpoint (section 5.1).
#[derive(Debug, Default, Deserialize)]
pub struct Profile {
    /// The mail address.
    pub email: Option<String>,
    /// True if the provider has confirmed that the address is the user's; `None` if it does not
    /// say.
    #[serde(default, deserialize_with = "truth")]
    pub email_verified: Option<bool>,
    /// The full name.
    pub name: Option<String>,
    /// All other claims.
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Profile {
    /// The text of a claim.
    pub(super) fn text(&self, claim: &str) -> Option<&str> {
        match claim {
            "email" => self.email.as_deref(),
            "name" => self.name.as_deref(),
            other => self.others.get(other)?.as_str(),
        }
    }

    /// The groups in a claim: a list of texts, or one text. `None` without the claim.
    pub(super) fn groups(&self, claim: &str) -> Option<Vec<String>> {
        let value = self.others.get(claim)?;
        let texts = match value {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        let texts = texts.iter().filter_map(Value::as_str);
        Some(texts.take(MAX_GROUPS).map(str::to_owned).collect())
    }

    /// True if the provider has left a claim out because it is too large, as Entra ID does (section
    /// 5.6.2, distributed claims).
    pub(super) fn is_distributed(&self, claim: &str) -> bool {
        let names = self.others.get("_claim_names");
        names.is_some_and(|names| names.get(claim).is_some())
    }

    /// The profile of the userinfo endpoint in place of this one, which is that of the ID token. A
    /// denial of the ID token remains, and so does its name if the other profile has none.
    pub(super) fn replaced_by(self, user_info: Self) -> Self {
        let denied = (self.email_verified == Some(false)).then_some(false);
        Self {
            email_verified: denied.or(user_info.email_verified),
            name: user_info.name.or(self.name),
            ..user_info
        }
    }
}

/// Required values of a token.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedClaims<'a> {
    /// Identifier of the provider.
    pub issuer: &'a str,
    /// Client id of the platform.
    pub client_id: &'a str,
    /// Algorithms that the provider announces for signing; empty if it announces none.
    pub algorithms: &'a [String],
}

/// Validates a token and returns its claims. It must be signed by one of the keys, come from the
/// provider, be for the platform and for this sign-in, and be valid at `now`.
pub(super) fn check(
    token: &str,
    keys: &KeySet,
    expected: ExpectedClaims<'_>,
    secrets: &FlowSecrets<'_>,
    now: Timestamp,
) -> Result<IdClaims, TokenError> {
    let refused = |why| Err(TokenError::Refused(why));
    let wrong = |claim, why| Err(TokenError::Claim { claim, why });
    let token = verify(token, keys, expected)?;
    if let Some(claim) = malformed_claim(&token.claims) {
        return wrong(claim, "it is missing or malformed");
    }
    let Ok(claims) = serde_json::from_value::<IdClaims>(token.claims) else {
        return refused("its format is wrong");
    };
    check_recipient(&claims.iss, &claims.aud, expected)?;
    let party = claims.azp.as_deref();
    if party.is_some_and(|party| party != expected.client_id)
        || (claims.aud.len() > 1 && party.is_none())
    {
        return wrong("azp", "the authorized party is another client");
    }
    let second = now.as_second();
    if claims.exp.saturating_add(LEEWAY) <= second {
        return wrong("exp", "the token has expired");
    }
    let is_later = |time: i64| time.saturating_sub(LEEWAY) > second;
    if is_later(claims.iat) {
        return wrong("iat", "the token was issued in the future");
    }
    if claims.nbf.is_some_and(is_later) {
        return wrong("nbf", "the token is not valid yet");
    }
    if !claims
        .nonce
        .as_deref()
        .is_some_and(|nonce| secrets.is_nonce(nonce))
    {
        return wrong("nonce", "the token belongs to another sign-in");
    }
    // Section 2: at most 255 ASCII characters, which are compared byte for byte.
    if claims.sub.is_empty() || claims.sub.len() > MAX_SUBJECT || !claims.sub.is_ascii() {
        return wrong("sub", "the subject is empty, too long or not ASCII");
    }
    Ok(claims)
}

/// Checks that a token comes from the provider and is for the platform.
pub(super) fn check_recipient(
    issuer: &str,
    audiences: &[String],
    expected: ExpectedClaims<'_>,
) -> Result<(), TokenError> {
    let wrong = |claim, why| Err(TokenError::Claim { claim, why });
    if issuer != expected.issuer {
        return wrong("iss", "it names another issuer");
    }
    let mut audiences = audiences.iter();
    if !audiences.any(|audience| audience == expected.client_id) {
        return wrong("aud", "the audience is another client");
    }
    Ok(())
}

/// A token whose signature is valid.
#[derive(Debug)]
pub(super) struct SignedToken {
    /// `typ` of its header.
    pub(super) kind: Option<String>,
    /// Its claims, unchecked.
    pub(super) claims: Value,
}

/// Checks the signature of a token.
pub(super) fn verify(
    token: &str,
    keys: &KeySet,
    expected: ExpectedClaims<'_>,
) -> Result<SignedToken, TokenError> {
    let refused = |why| Err(TokenError::Refused(why));
    // `none` is not an algorithm of this parser.
    let Ok(header) = decode_header(token) else {
        return refused("its signature algorithm is not supported");
    };
    let algorithm = header.alg;
    // Symmetric algorithms are not in the list, because a public key is not a secret.
    if !ALGORITHMS.contains(&algorithm) {
        return refused("its signature algorithm does not use a key pair");
    }
    if !expected.algorithms.is_empty() && !expected.algorithms.iter().any(|a| *a == name(algorithm))
    {
        return refused("its signature algorithm is not announced by the provider");
    }
    // RFC 7515 section 4.1.11: critical extensions that are not understood must be rejected.
    if header.crit.is_some() {
        return refused("it has critical header parameters");
    }
    let key = keys.find(header.kid.as_deref(), algorithm)?;
    let Ok(key) = DecodingKey::from_jwk(key) else {
        return refused("its key cannot be used");
    };
    let mut signature = Validation::new(algorithm);
    // Only signature and shape are checked here. The claims are checked below, at the time `now`.
    signature.required_spec_claims.clear();
    signature.validate_exp = false;
    signature.validate_aud = false;
    let Ok(token) = decode::<Value>(token, &key, &signature) else {
        return refused("its signature or its format is wrong");
    };
    Ok(SignedToken {
        kind: header.typ,
        claims: token.claims,
    })
}

/// The first claim that is missing or of the wrong kind.
fn malformed_claim(claims: &Value) -> Option<&'static str> {
    let is_text: fn(&Value) -> bool = Value::is_string;
    let is_time: fn(&Value) -> bool = Value::is_i64;
    let is_audience: fn(&Value) -> bool = |value| {
        let list = value.as_array();
        value.is_string() || list.is_some_and(|list| list.iter().all(Value::is_string))
    };
    let required = [
        ("iss", is_text),
        ("sub", is_text),
        ("aud", is_audience),
        ("exp", is_time),
        ("iat", is_time),
    ];
    let optional = [
        ("nonce", is_text),
        ("azp", is_text),
        ("nbf", is_time),
        ("auth_time", is_time),
        ("email", is_text),
        ("name", is_text),
    ];
    let required = required
        .into_iter()
        .find(|(claim, is_valid)| !claims.get(claim).is_some_and(is_valid));
    let optional = optional.into_iter().find(|(claim, is_valid)| {
        let value = claims.get(claim).filter(|value| !value.is_null());
        value.is_some_and(|value| !is_valid(value))
    });
    required.or(optional).map(|(claim, _)| claim)
}

fn is_for(key: &Jwk, algorithm: Algorithm) -> bool {
    let signs = matches!(
        key.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    let is_its = key
        .common
        .key_algorithm
        .is_none_or(|its| its == KeyAlgorithm::from(algorithm));
    let fits = match (&key.algorithm, algorithm) {
        (AlgorithmParameters::RSA(_), other) => name(other).starts_with(['R', 'P']),
        (AlgorithmParameters::EllipticCurve(_), other) => name(other).starts_with("ES"),
        (AlgorithmParameters::OctetKeyPair(_), other) => other == Algorithm::EdDSA,
        _ => false,
    };
    signs && is_its && fits
}

/// The name in a header (RFC 7518 section 3.1).
fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RS256 => "RS256",
        Algorithm::RS384 => "RS384",
        Algorithm::RS512 => "RS512",
        Algorithm::PS256 => "PS256",
        Algorithm::PS384 => "PS384",
        Algorithm::PS512 => "PS512",
        Algorithm::ES256 => "ES256",
        Algorithm::ES384 => "ES384",
        Algorithm::EdDSA => "EdDSA",
        // All other algorithms are rejected.
        _ => "",
    }
}

pub(super) fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(from)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}

/// Parses a boolean, or the text `true` that some providers send. Everything else is false.
fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    let value = Value::deserialize(from)?;
    let is_true = value == Value::Bool(true) || value == "true";
    Ok((!value.is_null()).then_some(is_true))
}

/// Only asymmetric algorithms, without those that are broken.
const ALGORITHMS: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Allowed difference between the provider's clock and ours, in seconds.
pub(super) const LEEWAY: i64 = 60;

/// OpenID Connect Core 1.0 section 2, `sub`.
pub(super) const MAX_SUBJECT: usize = 255;

/// Maximum number of groups of a user that are compared. Entra ID sends 200 at most.
const MAX_GROUPS: usize = 1000;

/// Maximum number of keys. Providers have a handful, and each is checked for every token.
const MAX_KEYS: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_number_of_groups_is_limited() {
        let read = |groups: Value| {
            let profile: Profile = serde_json::from_value(json!({"g": groups})).unwrap();
            profile.groups("g").unwrap().len()
        };
        assert_eq!(read(json!(vec!["a"; 1001])), 1000);
        assert_eq!(
            (read(json!("a")), read(json!([1, "a"])), read(json!({}))),
            (1, 1, 0)
        );
        assert_eq!(Profile::default().groups("g"), None);
    }

    #[test]
    fn the_number_of_provider_keys_is_limited() {
        let key = json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"});
        let keys = vec![key; 101];
        assert_eq!(KeySet::read(JwksDocument { keys }).0.len(), 100);
    }
}
