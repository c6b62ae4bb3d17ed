//! Minting of tokens, and inspection without verification.

#[cfg(test)]
mod tests;

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use types::boundary::{Action, Boundary};
use types::filter::ParamError;
use types::permission::Permission;

use crate::access::AccessClaims;
use crate::jws::Compact;
use crate::key::Algorithm;
use crate::keyring::BadKey;
use crate::secret::Secret;
use crate::token::{Identity, MAX_TOKEN_BYTES, TokenKind};

/// A key that signs.
pub struct SigningKey {
    id: Option<String>,
    algorithm: Algorithm,
    material: Material,
}

enum Material {
    Shared(Box<hmac::Key>),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// HS256 with a shared secret, which must not be empty.
    pub fn from_secret(secret: &Secret) -> Result<Self, BadKey> {
        if secret.expose().is_empty() {
            return Err(BadKey("the secret is empty"));
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose());
        Ok(Self {
            id: None,
            algorithm: Algorithm::Hs256,
            material: Material::Shared(Box::new(key)),
        })
    }

    /// A private key (`PRIVATE KEY` in PEM, PKCS#8): P-256, P-384, P-521, Ed25519 or RSA.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| BadKey("no PRIVATE KEY section (PKCS#8) in the PEM text"))?;
        let der = der.secret_pkcs8_der();
        let curves = [
            (Algorithm::Es256, &ECDSA_P256_SHA256_FIXED_SIGNING),
            (Algorithm::Es384, &ECDSA_P384_SHA384_FIXED_SIGNING),
            (Algorithm::Es512, &ECDSA_P521_SHA512_FIXED_SIGNING),
        ];
        let on_a_curve = curves.into_iter().find_map(|(algorithm, signing)| {
            EcdsaKeyPair::from_pkcs8(signing, der)
                .ok()
                .map(|pair| (algorithm, Material::Ecdsa(pair)))
        });
        let (algorithm, material) = on_a_curve
            .or_else(|| {
                let pair = Ed25519KeyPair::from_pkcs8(der).ok()?;
                Some((Algorithm::EdDsa, Material::Ed25519(pair)))
            })
            .or_else(|| {
                RsaKeyPair::from_pkcs8(der)
                    .ok()
                    .map(|pair| (Algorithm::Rs256, Material::Rsa(pair)))
            })
            .ok_or(BadKey("not a private key of a supported kind"))?;
        Ok(Self {
            id: None,
            algorithm,
            material,
        })
    }

    /// A key on P-256 with its `kid`.
    pub(crate) fn from_p256(pair: EcdsaKeyPair, kid: String) -> Self {
        Self {
            id: Some(kid),
            algorithm: Algorithm::Es256,
            material: Material::Ecdsa(pair),
        }
    }

    /// Sets the `kid` for the header of its tokens.
    #[must_use]
    pub fn with_kid(mut self, kid: impl Into<String>) -> Self {
        self.id = Some(kid.into());
        self
    }

    /// The `kid` in the header of its tokens.
    pub fn kid(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The public key as a JWK (RFC 8037 section 2) with its `kid`. Only for Ed25519 keys, because
    /// only those are published.
    pub fn public_jwk(&self) -> Option<Value> {
        let Material::Ed25519(pair) = &self.material else {
            return None;
        };
        let mut jwk = json!({
            "kty": "OKP",
            "crv": "Ed25519",
            "x": URL_SAFE_NO_PAD.encode(pair.public_key().as_ref()),
            "use": "sig",
            "alg": self.algorithm.as_str(),
        });
        if let (Some(id), Some(members)) = (&self.id, jwk.as_object_mut()) {
            members.insert("kid".to_owned(), json!(id));
        }
        Some(jwk)
    }

    /// The thumbprint of the public key (RFC 7638, RFC 8037 section 2): a `kid` derived from the
    /// key. Only for Ed25519 keys.
    pub fn thumbprint(&self) -> Option<String> {
        let Material::Ed25519(pair) = &self.material else {
            return None;
        };
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, members.as_bytes());
        Some(URL_SAFE_NO_PAD.encode(digest.as_ref()))
    }

    /// Signs header and claims unchanged, into a compact JWS.
    pub(crate) fn sign(&self, header: &str, claims: &str) -> Result<Secret, MintError> {
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let message = signed.as_bytes();
        let signature = match &self.material {
            Material::Shared(key) => hmac::sign(key, message).as_ref().to_vec(),
            Material::Ed25519(pair) => pair
                .try_sign(message)
                .map_err(|_| MintError::Signing)?
                .as_ref()
                .to_vec(),
            Material::Ecdsa(pair) => pair
                .sign(&SystemRandom::new(), message)
                .map_err(|_| MintError::Signing)?
                .as_ref()
                .to_vec(),
            Material::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(
                    &RSA_PKCS1_SHA256,
                    &SystemRandom::new(),
                    message,
                    &mut signature,
                )
                .map_err(|_| MintError::Signing)?;
                signature
            }
        };
        Ok(Secret::new(format!(
            "{signed}.{}",
            URL_SAFE_NO_PAD.encode(signature)
        )))
    }

    pub(crate) fn header(&self) -> Map<String, Value> {
        let mut header = Map::new();
        header.insert("alg".to_owned(), json!(self.algorithm.as_str()));
        header.insert("typ".to_owned(), json!("JWT"));
        if let Some(id) = &self.id {
            header.insert("kid".to_owned(), json!(id));
        }
        header
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Properties of a new token.
#[derive(Clone, Debug)]
pub struct MintRequest {
    /// Kind of the token.
    pub kind: TokenKind,
    /// The identity that the token acts as.
    pub identity: Identity,
    /// Lifetime in seconds from now, at least one; `None` creates a token without expiry.
    pub ttl_seconds: Option<u32>,
    /// Permissions; `None`: not restricted.
    pub permissions: Option<Vec<Permission>>,
    /// The `resources` claim.
    pub resources: Option<Value>,
}

/// Origin of a token of a platform: its link to the stored credential.
#[derive(Clone, Debug)]
pub struct Provenance {
    /// `iss`: the platform's own address.
    pub issuer: String,
    /// `jti`: makes two tokens of the same second different, with different digests.
    pub id: String,
    /// The stored credential.
    pub source: Source,
}

/// The stored credential behind a token.
#[derive(Clone, Debug)]
pub enum Source {
    /// `token_endpoint`, 8 hex digits: the token is the secret of a personal access token.
    TokenEndpoint(String),
    /// The same, issued to an OAuth client (RFC 9068).
    AccessToken {
        /// `token_endpoint`.
        endpoint: String,
        /// The additional claims of an access token.
        claims: AccessClaims,
    },
    /// The token was minted from another credential, and is revoked with it.
    Credential {
        /// `sourceCredentialId`.
        id: String,
        /// `sourceCredentialUpdatedAt`, RFC 3339.
        updated_at: String,
    },
}

/// The start of every personal access token, by which scanners find one in source code and logs. It
/// is the base64url of [`PAT_HEADER_START`].
pub const PAT_PREFIX: &str = "eyJraW5kIjoic3ZjLXBhdCIs";

/// The first member of the header of a personal access token. Its length is a multiple of three, so
/// that its base64url does not depend on the next member. JWT libraries ignore members that they do
/// not know (RFC 7515 section 4).
const PAT_HEADER_START: &str = "{\"kind\":\"svc-pat\",";

/// Mints a token at `now` (Unix seconds). Refuses an invalid boundary, and permissions whose
/// actions the boundary never allows.
pub fn mint(key: &SigningKey, request: &MintRequest, now: i64) -> Result<Secret, MintError> {
    mint_from(key, request, None, now)
}

/// [`mint`], for a platform with stored credentials.
pub fn mint_from(
    key: &SigningKey,
    request: &MintRequest,
    provenance: Option<&Provenance>,
    now: i64,
) -> Result<Secret, MintError> {
    if request.ttl_seconds == Some(0) {
        return Err(ParamError::new("ttl", "at least one second").into());
    }
    if request.identity.id().is_empty() {
        return Err(ParamError::new("identity", "may not be empty").into());
    }
    if let Some(resources) = &request.resources {
        // Both spellings are accepted; the engine that reads the token decides which of them it
        // accepts.
        Boundary::check(resources, true)?;
        let boundary = Boundary::parse(Some(resources), true);
        check_consistency(
            request.permissions.as_deref().unwrap_or_default(),
            &boundary,
        )?;
    }
    let mut header = key.header();
    let mut claims = Map::new();
    claims.insert("type".to_owned(), json!(request.kind.as_str()));
    let (claim, id) = match &request.identity {
        Identity::User(id) => ("userId", id),
        Identity::Client(id) => ("clientId", id),
    };
    claims.insert(claim.to_owned(), json!(id));
    claims.insert("iat".to_owned(), json!(now));
    if let Some(seconds) = request.ttl_seconds {
        claims.insert(
            "exp".to_owned(),
            json!(now.saturating_add(i64::from(seconds))),
        );
    }
    if let Some(permissions) = &request.permissions {
        claims.insert("permissions".to_owned(), json!(permissions));
    }
    if let Some(resources) = &request.resources {
        claims.insert("resources".to_owned(), resources.clone());
    }
    if let Some(provenance) = provenance {
        claims.insert("iss".to_owned(), json!(provenance.issuer));
        claims.insert("jti".to_owned(), json!(provenance.id));
        match &provenance.source {
            Source::TokenEndpoint(endpoint) => {
                claims.insert("token_endpoint".to_owned(), json!(endpoint));
            }
            Source::AccessToken {
                endpoint,
                claims: access,
            } => {
                // RFC 9068 section 2.2.
                claims.insert("sub".to_owned(), json!(request.identity.id()));
                claims.insert("aud".to_owned(), json!(access.resource));
                claims.insert("resource".to_owned(), json!(access.resource));
                claims.insert("client_id".to_owned(), json!(access.client_id));
                claims.insert("scope".to_owned(), json!(access.scope.to_string()));
                claims.insert("token_endpoint".to_owned(), json!(endpoint));
                header.insert("typ".to_owned(), json!("at+jwt"));
            }
            Source::Credential { id, updated_at } => {
                claims.insert("sourceCredentialId".to_owned(), json!(id));
                claims.insert("sourceCredentialUpdatedAt".to_owned(), json!(updated_at));
            }
        }
    }
    let mut header = Value::Object(header).to_string();
    if request.kind == TokenKind::Pat {
        // The first member is written by hand, because its position matters.
        header.replace_range(..1, PAT_HEADER_START);
    }
    let token = key.sign(&header, &Value::Object(claims).to_string())?;
    if token.expose().len() > MAX_TOKEN_BYTES {
        return Err(ParamError::new(
            "resources",
            format!("the token would have more than {MAX_TOKEN_BYTES} bytes"),
        )
        .into());
    }
    Ok(token)
}

/// Signs a statement that is not a token: `kind` is its type (RFC 8725 section 3.11), so that
/// [`crate::verify`] never accepts it as one.
///
/// # Errors
/// The type is that of a token, or the key failed to sign.
pub fn sign_statement(key: &SigningKey, kind: &str, claims: &Value) -> Result<Secret, MintError> {
    let is_same_type = |token: &&str| kind.eq_ignore_ascii_case(token);
    if ["JWT", "at+jwt"].iter().any(is_same_type) {
        return Err(ParamError::new("typ", "is the type of a token").into());
    }
    let mut header = key.header();
    header.insert("typ".to_owned(), json!(kind));
    key.sign(&Value::Object(header).to_string(), &claims.to_string())
}

/// Header and claims of a token, unverified: `{header, claims}`. Must not be used for decisions.
pub fn inspect(token: &str) -> Option<Value> {
    let compact = Compact::parse(token).ok()?;
    let claims = compact.claims()?;
    Some(json!({"header": compact.header, "claims": claims}))
}

/// The application in the claims of a token: `clientId` of one whose `type` is `app`, unverified.
/// Only to be used to look up the key.
pub fn application(token: &str) -> Option<String> {
    let claims = Compact::parse(token).ok()?.claims()?;
    let text = |name| claims.get(name).and_then(Value::as_str);
    (text("type") == Some(TokenKind::App.as_str())).then_some(())?;
    text("clientId").map(str::to_owned)
}

/// Reason why a token cannot be minted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// An invalid input.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// The key failed to sign.
    #[error("the key could not sign")]
    Signing,
}

/// Refuses permissions whose action the boundary never allows: they would appear to be granted, but
/// always be refused.
pub fn check_consistency(
    permissions: &[Permission],
    boundary: &Boundary,
) -> Result<(), ParamError> {
    for permission in permissions {
        let (actions, names): (&[Action], _) = match permission {
            Permission::TunnelsResourcesReadOnly
            | Permission::WebttySessionsReadOnly
            | Permission::WebttyLogsReadOnly
            | Permission::WebttyLogsReadWrite => (&[Action::List], "list"),
            Permission::TunnelsTunnelsCreateDelete => (&[Action::Create], "create"),
            Permission::TunnelsStreamsCreateDelete => (&[Action::Connect], "connect"),
            Permission::WebttySessionsReadWrite => {
                (&[Action::List, Action::Connect], "list and connect")
            }
            _ => continue,
        };
        if !actions
            .iter()
            .all(|action| boundary.allows_somewhere(*action))
        {
            let message = format!("{permission} needs the tunnel action {names} in resources");
            return Err(ParamError::new("permissions", message));
        }
    }
    Ok(())
}
