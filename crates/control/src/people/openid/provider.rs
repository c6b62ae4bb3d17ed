//! Client of the OpenID provider: its metadata, its keys, and the identity for a code.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use credentials::Secret;
use daemon::files::read_bounded;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, AUTHORIZATION};
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use tokio::sync::Semaphore;
use types::percent::escaped;

use super::fetch::{client, json};
use super::logout_token::{self, LogoutToken};
use super::secrets::FlowSecrets;
use super::section::OpenIdConfig;
use super::token::{
    ExpectedClaims, IdClaims, JwksDocument, KeySet, MAX_SUBJECT, Profile, TokenError, check,
};
use crate::config::is_loopback;

/// A provider, with its cached metadata and keys.
#[derive(Debug)]
pub struct Provider {
    config: OpenIdConfig,
    redirect_uri: String,
    secret: Option<Secret>,
    http: Client,
    cache: Mutex<ProviderCache>,
    /// Limits the number of sign-ins that wait for the provider.
    request_permits: Semaphore,
    /// Limits the number of logout tokens that wait for the provider's keys.
    logout_permits: Semaphore,
}

#[derive(Debug, Default)]
struct ProviderCache {
    metadata: Option<(Arc<Metadata>, Timestamp)>,
    keys: Option<(Arc<KeySet>, Timestamp)>,
    failed_at: Option<Timestamp>,
}

/// Metadata of a provider (OpenID Connect Discovery 1.0 section 3, RFC 8414).
#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: Endpoint,
    token_endpoint: Endpoint,
    jwks_uri: Endpoint,
    userinfo_endpoint: Option<Endpoint>,
    end_session_endpoint: Option<Endpoint>,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// A URL in the metadata.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Endpoint(Url);

impl TryFrom<String> for Endpoint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Url::parse(&text).map(Self).map_err(|_| "not an address")
    }
}

/// Reasons that the provider did not authenticate a user. The text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The provider does not answer, or not in time.
    #[error("the provider did not respond")]
    Unavailable(#[source] reqwest::Error),
    /// The provider did not answer a moment ago.
    #[error("the provider did not respond a moment ago")]
    RecentlyFailed,
    /// Too many requests wait for the provider.
    #[error("too many requests are waiting for the provider")]
    Busy,
    /// The provider refuses.
    #[error("the provider responded with status {0}")]
    Status(u16),
    /// The response is too large.
    #[error("the provider's response is too large")]
    TooLarge,
    /// The response is not the expected JSON.
    #[error("the provider's response is not the expected JSON")]
    NotJson,
    /// The metadata is invalid.
    #[error("the provider's metadata: {0}")]
    Metadata(&'static str),
    /// The ID token is invalid.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The callback has another issuer, or none although the provider sends it (RFC 9207).
    #[error("the response names another issuer, or none")]
    IssuerMismatch,
    /// The user did not authenticate again, as was requested.
    #[error("the user did not authenticate again")]
    NotReauthenticated,
}

impl ProviderError {
    /// True if the failure is temporary, so that a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::RecentlyFailed | Self::Busy => true,
            Self::Status(status) => *status >= 500 || *status == 429,
            _ => false,
        }
    }
}

/// A user's identity at the provider.
#[derive(Debug)]
pub struct ProviderIdentity {
    /// The provider's identifier of the user.
    pub subject: String,
    /// The user's profile at the provider.
    pub profile: Profile,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The provider's identifier of its session.
    pub sid: Option<String>,
    /// Time of the last authentication there, if the provider reports it: seconds since 1970.
    pub auth_time: Option<i64>,
}

impl Provider {
    /// Creates the client of the configured provider. It sends no request yet.
    ///
    /// # Errors
    /// A file cannot be used. The text is a sentence for the operator.
    pub fn open(config: &OpenIdConfig, redirect_uri: String) -> Result<Self, String> {
        let secret = match &config.client_secret_file {
            None => None,
            Some(path) => {
                let failed = |message: String| format!("{}: {message}", path.display());
                let bytes = read_bounded(path, MAX_SECRET_BYTES);
                let bytes = bytes.map_err(|error| failed(error.to_string()))?;
                let text = bytes.trim_ascii();
                if text.is_empty() {
                    return Err(failed("the secret is empty".to_owned()));
                }
                Some(Secret::new(text))
            }
        };
        Ok(Self {
            http: client(config.ca_file.as_deref())?,
            config: config.clone(),
            redirect_uri,
            secret,
            cache: Mutex::default(),
            request_permits: Semaphore::new(MAX_CONCURRENT),
            logout_permits: Semaphore::new(MAX_LOGOUTS),
        })
    }

    pub fn config(&self) -> &OpenIdConfig {
        &self.config
    }

    /// The address at which the user signs in. `reauthenticate` also requires users with a session at the
    /// provider to authenticate again.
    pub(super) async fn authorization_url(
        &self,
        secrets: &FlowSecrets<'_>,
        reauthenticate: bool,
        now: Timestamp,
    ) -> Result<String, ProviderError> {
        let _permit = self
            .request_permits
            .try_acquire()
            .map_err(|_| ProviderError::Busy)?;
        let mut url = self.metadata(now).await?.authorization_endpoint.0.clone();
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &self.config.scope)
            .append_pair("state", &secrets.state())
            .append_pair("nonce", &secrets.nonce())
            .append_pair("code_challenge", &secrets.challenge())
            .append_pair("code_challenge_method", "S256");
        if reauthenticate {
            query
                .append_pair("prompt", "login")
                .append_pair("max_age", "0");
        }
        drop(query);
        Ok(url.into())
    }

    /// Checks that a callback with this `iss` may be from this provider (RFC 9207 section 2.4).
    pub(super) async fn check_iss(
        &self,
        iss: Option<&str>,
        now: Timestamp,
    ) -> Result<(), ProviderError> {
        let ours = if let Some(iss) = iss {
            iss == self.config.issuer
        } else {
            let metadata = self.metadata(now).await?;
            !metadata.authorization_response_iss_parameter_supported
        };
        ours.then_some(()).ok_or(ProviderError::IssuerMismatch)
    }

    /// Redeems a code.
    pub(super) async fn redeem(
        &self,
        code: &str,
        secrets: &FlowSecrets<'_>,
        now: Timestamp,
    ) -> Result<ProviderIdentity, ProviderError> {
        let _permit = self
            .request_permits
            .try_acquire()
            .map_err(|_| ProviderError::Busy)?;
        let metadata = self.metadata(now).await?;
        let answer: TokenAnswer = json(self.token_request(&metadata, code, secrets)).await?;
        let claims = self
            .claims(&metadata, &answer.id_token, secrets, now)
            .await?;
        let mut profile = claims.profile;
        let sid = profile
            .text("sid")
            .filter(|sid| is_sid(sid))
            .map(str::to_owned);
        let lacks_email = profile.text(self.config.email.claim()).is_none();
        let mut groups = self.groups(&profile);
        // Section 5.4: with a code, requested claims may be available only at the userinfo
        // endpoint.
        if (lacks_email || groups.is_none())
            && let (Some(endpoint), Some(token)) =
                (&metadata.userinfo_endpoint, answer.access_token)
        {
            let request = self.http.get(endpoint.0.clone()).bearer_auth(token);
            let user_info: UserInfo = json(request).await?;
            // Section 5.3.2: the response may be about another user.
            if user_info.sub != claims.sub {
                let (claim, why) = ("sub", "the userinfo is about another user");
                return Err(TokenError::Claim { claim, why }.into());
            }
            groups = groups.or_else(|| self.groups(&user_info.profile));
            if lacks_email {
                profile = profile.replaced_by(user_info.profile);
            }
        }
        Ok(ProviderIdentity {
            subject: claims.sub,
            profile,
            groups: groups.unwrap_or_default(),
            sid,
            auth_time: claims.auth_time,
        })
    }

    /// The groups in the configured claim. `None` if the profile does not have it. Without a claim in
    /// the configuration there are no groups.
    fn groups(&self, profile: &Profile) -> Option<Vec<String>> {
        let Some(rules) = &self.config.groups else {
            return Some(Vec::new());
        };
        let claim = rules.claim();
        if profile.is_distributed(claim) {
            // A user without groups has no role, so that no user keeps one by joining more groups.
            tracing::warn!(
                claim,
                "a user is in more groups than the OpenID provider reports, and gets no role from \
                 them: limit the claim to the groups of this application"
            );
        }
        profile.groups(claim)
    }

    /// The address at which a user signs out at the provider, and returns to `back` (RP-Initiated
    /// Logout 1.0 section 2). `None` if the provider has none, or the configuration does not use it.
    /// The platform does not keep ID tokens, so the address names the client instead.
    pub(super) async fn end_session_url(
        &self,
        back: &str,
        state: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<String>, ProviderError> {
        if !self.config.end_session {
            return Ok(None);
        }
        let permit = self.request_permits.try_acquire();
        let _permit = permit.map_err(|_| ProviderError::Busy)?;
        let metadata = self.metadata(now).await?;
        let Some(Endpoint(endpoint)) = &metadata.end_session_endpoint else {
            return Ok(None);
        };
        let mut url = endpoint.clone();
        let mut query = url.query_pairs_mut();
        query
            .append_pair("client_id", &self.config.client_id)
            .append_pair("post_logout_redirect_uri", back);
        if let Some(state) = state {
            query.append_pair("state", state);
        }
        drop(query);
        Ok(Some(url.into()))
    }

    /// Checks a logout token.
    pub(super) async fn check_logout(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<LogoutToken, ProviderError> {
        let permit = self.logout_permits.try_acquire();
        let _permit = permit.map_err(|_| ProviderError::Busy)?;
        let metadata = self.metadata(now).await?;
        let expected = self.expected(&metadata);
        let keys = self.keys(&metadata, MAX_KEY_AGE, now).await?;
        match logout_token::check(token, &keys, expected, now) {
            Err(TokenError::UnknownKey) => {
                let keys = self.keys(&metadata, MIN_KEY_INTERVAL, now).await?;
                Ok(logout_token::check(token, &keys, expected, now)?)
            }
            checked => Ok(checked?),
        }
    }

    fn expected<'a>(&'a self, metadata: &'a Metadata) -> ExpectedClaims<'a> {
        ExpectedClaims {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            algorithms: &metadata.id_token_signing_alg_values_supported,
        }
    }

    fn token_request(
        &self,
        metadata: &Metadata,
        code: &str,
        secrets: &FlowSecrets<'_>,
    ) -> RequestBuilder {
        let client_id = self.config.client_id.as_str();
        let verifier = secrets.verifier();
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", &verifier),
        ];
        let request = self.http.post(metadata.token_endpoint.0.clone());
        let request = request.header(ACCEPT, "application/json");
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let speaks = |method: &str| methods.iter().any(|known| known == method);
        let secret = self.secret.as_ref().map(|secret| {
            // Client secrets are text in every provider's console.
            String::from_utf8_lossy(secret.expose()).into_owned()
        });
        let Some(secret) = secret else {
            form.push(("client_id", client_id));
            return request.form(&form);
        };
        if speaks("client_secret_post") && !speaks("client_secret_basic") {
            form.push(("client_id", client_id));
            form.push(("client_secret", &secret));
            return request.form(&form);
        }
        // RFC 6749 section 2.3.1: both are form-encoded before they are joined.
        let pair = format!("{}:{}", encoded(client_id), encoded(&secret));
        let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
        request.header(AUTHORIZATION, basic).form(&form)
    }

    async fn claims(
        &self,
        metadata: &Metadata,
        token: &str,
        secrets: &FlowSecrets<'_>,
        now: Timestamp,
    ) -> Result<IdClaims, ProviderError> {
        let expected = self.expected(metadata);
        let keys = self.keys(metadata, MAX_KEY_AGE, now).await?;
        match check(token, &keys, expected, secrets, now) {
            // The provider has a new key, or the key id is made up. The minimum interval limits how
            // often such tokens cause a request.
            Err(TokenError::UnknownKey) => {
                let keys = self.keys(metadata, MIN_KEY_INTERVAL, now).await?;
                Ok(check(token, &keys, expected, secrets, now)?)
            }
            checked => Ok(checked?),
        }
    }

    /// Returns the keys. They are fetched from the provider if the cached ones are older than
    /// `oldest`.
    async fn keys(
        &self,
        metadata: &Metadata,
        oldest: SignedDuration,
        now: Timestamp,
    ) -> Result<Arc<KeySet>, ProviderError> {
        let known = self.cache.lock().keys.clone();
        if let Some((keys, at)) = known
            && is_within(at, oldest, now)
        {
            return Ok(keys);
        }
        let document: JwksDocument = json(self.http.get(metadata.jwks_uri.0.clone())).await?;
        let keys = Arc::new(KeySet::read(document));
        self.cache.lock().keys = Some((Arc::clone(&keys), now));
        Ok(keys)
    }

    async fn metadata(&self, now: Timestamp) -> Result<Arc<Metadata>, ProviderError> {
        {
            let known = self.cache.lock();
            if let Some((metadata, at)) = &known.metadata
                && is_within(*at, METADATA_LIFETIME, now)
            {
                return Ok(Arc::clone(metadata));
            }
            if known
                .failed_at
                .is_some_and(|at| is_within(at, FAILURE_PAUSE, now))
            {
                return Err(ProviderError::RecentlyFailed);
            }
        }
        let found = self.discover().await;
        let mut known = self.cache.lock();
        match found {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                known.metadata = Some((Arc::clone(&metadata), now));
                known.failed_at = None;
                Ok(metadata)
            }
            Err(error) => {
                known.failed_at = Some(now);
                Err(error)
            }
        }
    }

    async fn discover(&self) -> Result<Metadata, ProviderError> {
        let issuer = &self.config.issuer;
        let base = issuer.strip_suffix('/').unwrap_or(issuer);
        let address = format!("{base}/.well-known/openid-configuration");
        let metadata: Metadata = json(self.http.get(address)).await?;
        // Discovery section 4.3: the issuer must match byte for byte. Otherwise another party's
        // document was planted here.
        if metadata.issuer != *issuer {
            return Err(ProviderError::Metadata("it is of another issuer"));
        }
        let plain = issuer.starts_with("http://");
        let safe = |Endpoint(url): &Endpoint| {
            url.scheme() == "https"
                || (plain && url.scheme() == "http" && url.host_str().is_some_and(is_loopback))
        };
        let endpoints = [
            Some(&metadata.authorization_endpoint),
            Some(&metadata.token_endpoint),
            Some(&metadata.jwks_uri),
            metadata.userinfo_endpoint.as_ref(),
            metadata.end_session_endpoint.as_ref(),
        ];
        if !endpoints.into_iter().flatten().all(safe) {
            return Err(ProviderError::Metadata("an endpoint is not https"));
        }
        Ok(metadata)
    }
}

/// Response of the token endpoint (section 3.1.3.3).
#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct UserInfo {
    sub: String,
    #[serde(flatten)]
    profile: Profile,
}

/// A session identifier is opaque (Back-Channel Logout 1.0 section 2.1). One that cannot be stored is
/// treated as missing.
fn is_sid(text: &str) -> bool {
    (1..=MAX_SUBJECT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_within(at: Timestamp, age: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(at) < age
}

/// `application/x-www-form-urlencoded`, with more escapes than it requires.
fn encoded(text: &str) -> String {
    escaped(text).to_string().replace('~', "%7E")
}

/// Lifetime of cached metadata. It rarely changes, and a change of keys is noticed without it.
const METADATA_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// Maximum period for which a withdrawn key may still be accepted.
const MAX_KEY_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Minimum interval between two requests for the keys, independent of the tokens that arrive.
const MIN_KEY_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// After a failure the provider is not contacted for this long, so that users get their page
/// immediately.
const FAILURE_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of sign-ins that wait for the provider. Each waits a few seconds at most, so a
/// slow provider cannot accumulate more.
const MAX_CONCURRENT: usize = 64;

/// Maximum number of logout tokens that wait for the provider. Anyone can send one, so they do not
/// use the permits of sign-ins.
const MAX_LOGOUTS: usize = 16;

/// Larger files are not secrets.
const MAX_SECRET_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::people::openid::section::{EmailSource, SignUp};
    use crate::people::secret_link::LinkSecret;

    /// The provider accepts connections and never answers.
    #[tokio::test]
    async fn the_number_of_concurrent_provider_requests_is_limited() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = OpenIdConfig {
            issuer: format!("http://{}", listener.local_addr().unwrap()),
            client_id: "svc".to_owned(),
            client_secret_file: None,
            name: "Example ID".to_owned(),
            scope: "openid".to_owned(),
            sign_up: SignUp::Invited,
            email: EmailSource::Verified,
            groups: None,
            end_session: false,
            ca_file: None,
        };
        let provider = Provider::open(&config, "https://svc.example/callback".to_owned()).unwrap();
        let secret = LinkSecret::draw().unwrap();
        let (secrets, now) = (FlowSecrets(&secret), Timestamp::UNIX_EPOCH);
        let mut asking = Vec::new();
        for number in 0..64 {
            let mut one = Box::pin(provider.authorization_url(&secrets, false, now));
            assert!((&mut one).now_or_never().is_none(), "{number}");
            asking.push(one);
        }
        let one = provider.authorization_url(&secrets, false, now);
        assert!(matches!(one.await, Err(ProviderError::Busy)));
        let one = provider.redeem("code", &secrets, now);
        assert!(matches!(one.await, Err(ProviderError::Busy)));
        // Logout tokens have permits of their own.
        let mut logouts = Vec::new();
        for number in 0..16 {
            let mut one = Box::pin(provider.check_logout("token", now));
            assert!((&mut one).now_or_never().is_none(), "{number}");
            logouts.push(one);
        }
        let one = provider.check_logout("token", now);
        assert!(matches!(one.await, Err(ProviderError::Busy)));
        asking.pop();
        let one = provider.redeem("code", &secrets, now);
        assert!(one.now_or_never().is_none(), "a permit is free again");
    }
}
