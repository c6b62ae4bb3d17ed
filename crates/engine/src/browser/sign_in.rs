//! Sign-in of browsers through the platform (ED-2).
//!
//! A browser without a session is redirected to the platform with the hash of a secret, which it
//! keeps in a cookie of the tunnel's host. It returns with a code. A code is valid once, for a
//! minute, at one host and in the browser that has the secret. So an attacker can neither make a
//! victim use the attacker's code nor use a victim's code.
//!
//! Tabs of one browser can start sign-ins at the same time. Each of them then sets a secret, and
//! the browser keeps the last one. A tab that returns with a code for an earlier secret is
//! redirected to the platform again, for the secret that the browser has. A valid session, which
//! another tab started, completes the sign-ins of all tabs.

use api::link::{SIGN_IN, SignInClaims};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use types::percent::escaped;
use types::permission::Permission;
use types::tunnel::IdentityClaim;

use super::cookies::{self, EdgeCookies};
use super::long_target::LongTarget;
use super::one_time_ids::{OneTimeError, OneTimeIds};
use super::redirect_target::RedirectTarget;
use super::seals::{Purpose, Seals};
use super::session::Session;
use crate::access::{Tenancy, Tokens, TunnelPolicy};
use crate::directory::{Directory, Project};
use crate::random::random_bytes;

/// Codes that were used.
#[derive(Debug)]
pub(crate) struct SignIns {
    used: OneTimeIds,
}

/// Data of a browser's request that a sign-in needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignInRequest<'a> {
    /// Name of the tunnel's host, in lower case.
    pub(crate) host: &'a str,
    /// Host with the port if it is not 443, as the browser writes it.
    pub(crate) authority: &'a str,
    pub(crate) cookies: EdgeCookies<'a>,
    pub(crate) project: &'a Project,
    pub(crate) policy: &'a TunnelPolicy,
}

/// Redirect of a browser to the platform.
#[derive(Debug)]
pub(crate) struct SignInRedirect {
    pub(crate) location: String,
    /// The secret, unless the browser has one, and the parts of a long target.
    pub(crate) set_cookies: Vec<String>,
}

/// Redirect of a browser that returned from the platform.
#[derive(Debug)]
pub(crate) enum SignInCallback {
    /// The browser has a session.
    SignedIn {
        location: String,
        set_cookies: Vec<String>,
    },
    /// The code is for a secret that another tab replaced. The browser signs in again, for the
    /// secret that it has now.
    Restarted { location: String },
}

/// Reason why a returning browser is not signed in, for the log. The page shows the next steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("the state is not one of this host's")]
    State,
    #[error("the sign-in was not begun in this browser, or too long ago")]
    OtherBrowser,
    #[error("the sign-in was begun in another browser, or in another tab too often")]
    OtherTab,
    #[error("the code is not valid: {0}")]
    Code(&'static str),
    #[error("the code was used before")]
    Used,
    #[error("the person may not use the project")]
    NotAllowed,
    #[error("too many sign-ins at once")]
    Busy,
}

impl SignInError {
    /// True if the user was identified but is not a member of the project.
    pub(crate) fn is_not_allowed(self) -> bool {
        self == Self::NotAllowed
    }
}

impl Default for SignIns {
    fn default() -> Self {
        Self {
            used: OneTimeIds::new(MAX_CODE_SECONDS + LEEWAY_SECONDS, USED_CODES),
        }
    }
}

impl SignIns {
    /// Redirects a browser to the platform, which returns it to `target` (path and query) later.
    /// `head_bytes` is the limit of a request's head. `None` while the address of the platform is
    /// unknown.
    pub(crate) fn redirect_to_platform(
        request: SignInRequest<'_>,
        target: &str,
        head_bytes: usize,
        seals: &Seals,
        directory: &Directory,
        now: i64,
    ) -> Option<SignInRedirect> {
        directory.platform()?;
        let mut set_cookies = Vec::new();
        // Two tabs share one secret. Otherwise the second sign-in would delay the first.
        let secret = secret_of(request, seals, now).unwrap_or_else(|| {
            let mut secret = now.to_be_bytes().to_vec();
            secret.extend_from_slice(&random_bytes::<32>());
            let value = seals.sign(Purpose::SignIn, &[request.host.as_bytes()], &secret);
            set_cookies.push(cookies::set(cookies::SIGN_IN, &value, PENDING_SECONDS));
            secret
        });
        let mut pending = PendingSignIn {
            nonce: nonce_of(&secret),
            restarts: 0,
            long_target: None,
            target: target.to_owned(),
        };
        if target.len() > MAX_STATE_TARGET
            && let Some(stored) = LongTarget::store(seals, request.host, target, head_bytes)
        {
            pending.long_target = Some(stored.id);
            set_cookies.extend(stored.set_cookies);
        }
        let location = pending.platform_address(request, seals, directory)?;
        Some(SignInRedirect {
            location,
            set_cookies,
        })
    }

    /// Completes the sign-in of a browser that returned with a code and a state.
    pub(crate) fn complete(
        &self,
        request: SignInRequest<'_>,
        (code, state): (&str, &str),
        seals: &Seals,
        (tokens, tenancy): (&Tokens, &Tenancy),
        now: i64,
    ) -> Result<SignInCallback, SignInError> {
        let directory = tenancy.directory().ok_or(SignInError::State)?;
        let pending = PendingSignIn::open(seals, request.host, state).ok_or(SignInError::State)?;
        let started = self.start_session(request, (code, &pending), seals, (tokens, tenancy), now);
        let set_cookies = match started {
            Ok(session) => vec![
                session.set_cookie(seals, request.host, request.project),
                cookies::set(cookies::SIGN_IN, "", 0),
            ],
            // Another tab completed its sign-in first. The code of this one is ignored. A user that
            // may not use the project is refused, because this is another account than the
            // session's.
            Err(error)
                if !error.is_not_allowed() && has_session(request, seals, directory, now) =>
            {
                Vec::new()
            }
            Err(SignInError::OtherTab) if pending.restarts < MAX_RESTARTS => {
                let secret = secret_of(request, seals, now).ok_or(SignInError::OtherBrowser)?;
                let again = PendingSignIn {
                    nonce: nonce_of(&secret),
                    restarts: pending.restarts.saturating_add(1),
                    ..pending
                };
                let location = again.platform_address(request, seals, directory);
                let location = location.ok_or(SignInError::State)?;
                return Ok(SignInCallback::Restarted { location });
            }
            Err(error) => return Err(error),
        };
        let location = pending.location(request, seals).ok_or(SignInError::State)?;
        Ok(SignInCallback::SignedIn {
            location,
            set_cookies,
        })
    }

    /// Creates the session of a code. The code is then used.
    fn start_session(
        &self,
        request: SignInRequest<'_>,
        (code, pending): (&str, &PendingSignIn),
        seals: &Seals,
        (tokens, tenancy): (&Tokens, &Tenancy),
        now: i64,
    ) -> Result<Session, SignInError> {
        let directory = tenancy.directory().ok_or(SignInError::State)?;
        let secret = secret_of(request, seals, now).ok_or(SignInError::OtherBrowser)?;
        let claims = tokens
            .verify_sign_in_code(code)
            .map_err(|_| SignInError::Code("its signature or form"))?;
        check(&claims, request, directory, now).map_err(SignInError::Code)?;
        let is_for = |nonce: &str| bool::from(claims.nonce.as_bytes().ct_eq(nonce.as_bytes()));
        if !is_for(&pending.nonce) {
            return Err(SignInError::OtherBrowser);
        }
        if !is_for(&nonce_of(&secret)) {
            return Err(SignInError::OtherTab);
        }
        let ended_until = directory
            .person(&claims.sub)
            .map(|person| person.sessions_after)
            .ok_or(SignInError::NotAllowed)?;
        if claims.iat < ended_until {
            return Err(SignInError::Code("from before all sessions were ended"));
        }
        let permission = Permission::TunnelsStreamsCreateDelete;
        tenancy
            .require_for_user(Some(&claims.sub), None, request.project, permission)
            .map_err(|_| SignInError::NotAllowed)?;
        self.used
            .use_once(claims.jti.as_bytes(), &request.project.id, now)
            .map_err(|refused| match refused {
                OneTimeError::Used => SignInError::Used,
                OneTimeError::Full => SignInError::Busy,
            })?;
        if claims
            .sid
            .as_deref()
            .is_some_and(|session| directory.is_ended(session))
        {
            return Err(SignInError::Code("its session at the platform was ended"));
        }
        let shared = shared(&claims);
        Ok(Session {
            user_id: claims.sub,
            issued_at: now.max(ended_until.saturating_add(1)),
            id: claims.jti,
            shared,
            platform_session: claims.sid.filter(|sid| sid.len() <= MAX_SHOWN),
            name: claims.name.filter(|name| name.len() <= MAX_SHOWN),
            email: claims.email.filter(|email| email.len() <= MAX_SHOWN),
        })
    }
}

/// A sign-in that the platform returns in its `state`.
#[derive(Debug)]
struct PendingSignIn {
    /// Hash of the browser's secret.
    nonce: String,
    /// How often the sign-in was started again, because another tab replaced the secret.
    restarts: u8,
    /// Id of the cookies with the target, if it is long.
    long_target: Option<String>,
    /// Path and query.
    target: String,
}

impl PendingSignIn {
    /// The address of the platform's page.
    fn platform_address(
        &self,
        request: SignInRequest<'_>,
        seals: &Seals,
        directory: &Directory,
    ) -> Option<String> {
        let platform = directory.platform()?;
        let base = platform.base_url.trim_end_matches('/');
        let host = escaped(request.authority);
        let nonce = &self.nonce;
        let id = self.long_target.as_deref().unwrap_or_default();
        let word = format!("{nonce}.{}.{id}", self.restarts);
        let target = &self.target;
        let state = RedirectTarget::seal(seals, request.host, &word, target, MAX_STATE_TARGET)?;
        let mut address = format!("{base}{SIGN_IN}?host={host}&nonce={nonce}&state={state}");
        let mut separator = "&identity=";
        for claim in request.policy.shared_claims() {
            address.push_str(separator);
            address.push_str(claim.as_str());
            separator = ",";
        }
        Some(address)
    }

    fn open(seals: &Seals, host: &str, state: &str) -> Option<Self> {
        let (word, target) = RedirectTarget::open(seals, host, state)?;
        let mut parts = word.splitn(3, '.');
        let (nonce, restarts, id) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            nonce: nonce.to_owned(),
            restarts: restarts.parse().ok()?,
            long_target: (!id.is_empty()).then(|| id.to_owned()),
            target,
        })
    }

    /// The address of the requested page. It always is one of this host, because the authority is
    /// fixed before the target is appended.
    fn location(&self, request: SignInRequest<'_>, seals: &Seals) -> Option<String> {
        let target = match &self.long_target {
            Some(id) => LongTarget::route(seals, request.host, id, &self.target)?,
            None => self.target.clone(),
        };
        Some(format!("https://{}{target}", request.authority))
    }
}

/// The facts that the user shares with the service. An older platform does not ask its users, and
/// states the address and the name in every code.
fn shared(claims: &SignInClaims) -> Vec<IdentityClaim> {
    let all = IdentityClaim::ALL.iter().copied();
    let mut shared: Vec<_> = all.filter(|claim| claim.needs_agreement()).collect();
    if let Some(agreed) = &claims.identity {
        shared.retain(|claim| agreed.contains(claim));
    }
    shared
}

/// True if the browser has a valid session for the tunnel.
fn has_session(request: SignInRequest<'_>, seals: &Seals, directory: &Directory, now: i64) -> bool {
    let Some(cookie) = request.cookies.session.value() else {
        return false;
    };
    let session = Session::from_cookie(cookie, seals, request.host, request.project);
    session.is_ok_and(|session| {
        session.covers(request.policy) && session.check(directory, now).is_ok()
    })
}

/// Checks the claims of a code against the request. The nonce is checked separately.
fn check(
    claims: &SignInClaims,
    request: SignInRequest<'_>,
    directory: &Directory,
    now: i64,
) -> Result<(), &'static str> {
    let platform = directory.platform().ok_or("there is no platform")?;
    if claims.iss.trim_end_matches('/') != platform.base_url.trim_end_matches('/') {
        return Err("it is another platform's");
    }
    if claims.aud.strip_prefix("https://") != Some(request.authority) {
        return Err("it is for another host");
    }
    if claims.exp <= now {
        return Err("its time is over");
    }
    let life = claims.exp.saturating_sub(claims.iat);
    if claims.iat > now.saturating_add(LEEWAY_SECONDS) || !(1..=MAX_CODE_SECONDS).contains(&life) {
        return Err("its times are not those of a code");
    }
    if claims.jti.is_empty() || claims.sub.is_empty() {
        return Err("it lacks an id");
    }
    Ok(())
}

/// The secret in the browser's cookie, if this cluster created it and it has not expired.
fn secret_of(request: SignInRequest<'_>, seals: &Seals, now: i64) -> Option<Vec<u8>> {
    let cookie = request.cookies.sign_in.value()?;
    let secret = seals.verify(Purpose::SignIn, &[request.host.as_bytes()], cookie)?;
    let made: [u8; 8] = secret.get(..8)?.try_into().ok()?;
    let age = now.saturating_sub(i64::from_be_bytes(made));
    (-LEEWAY_SECONDS..PENDING_SECONDS)
        .contains(&age)
        .then_some(secret)
}

fn nonce_of(secret: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, secret);
    URL_SAFE_NO_PAD.encode(digest)
}

/// Limit of restarts of one sign-in. The first one is for the secret that the browser keeps.
/// Another one is necessary only if that secret expired in between.
const MAX_RESTARTS: u8 = 3;
/// Time limit of a sign-in in seconds. It allows for a password, a second factor and an email.
const PENDING_SECONDS: i64 = 30 * 60;
/// Maximum lifetime of a code in seconds.
const MAX_CODE_SECONDS: i64 = 60;
/// Tolerated clock difference between platform and engine, in seconds.
const LEEWAY_SECONDS: i64 = 5;
/// Limit of stored codes: five hundred sign-ins a second, for the lifetime of a code.
const USED_CODES: usize = 65_536;
/// Limit of a target in a `state`, in bytes. Sealed with its nonce, the `state` has less than 2048
/// characters, which is the limit of platforms. The browser keeps a longer target.
const MAX_STATE_TARGET: usize = 1400;
/// Limit of a stored name or address, in bytes. It is low because cookies are sent with every
/// request.
const MAX_SHOWN: usize = 256;

#[cfg(test)]
mod tests {
    use api::control::settings::ProjectSettings;
    use api::link::{Item, Limits, Platform, Project as ReplicatedProject};
    use credentials::Secret;
    use types::tunnel::TunnelProperties;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const HOST: &str = "web-0000000a.t.engine.localhost";

    fn seals() -> Seals {
        Seals::derive(&Secret::new("of the cluster")).unwrap()
    }

    /// A directory with one project.
    fn directory() -> Directory {
        let directory = Directory::default();
        let platform = Platform {
            base_url: "https://platform.example".to_owned(),
            cluster_domain: "engine.localhost".to_owned(),
        };
        let project = ReplicatedProject {
            id: "prj_1".to_owned(),
            endpoint: "0000000a".to_owned(),
            workspace_id: "wks_1".to_owned(),
            plan: "basic".to_owned(),
            provider: "other".to_owned(),
            region: None,
            suspended: false,
            settings: ProjectSettings::default(),
            limits: Limits::default(),
            addresses: Vec::new(),
            domains: Vec::new(),
            held: Vec::new(),
            taken_down: Vec::new(),
        };
        directory.replace(platform, vec![Item::Project(Box::new(project))]);
        directory
    }

    /// ED-2: the secret of a pending sign-in is valid for half an hour.
    #[test]
    fn ed_2_a_sign_in_takes_half_an_hour_at_most() {
        let (directory, seals) = (directory(), seals());
        let project = directory.project("prj_1").unwrap();
        let policy = TunnelPolicy::compile(&TunnelProperties::default());
        let depart = |cookie: &str, now| {
            let request = SignInRequest {
                host: HOST,
                authority: HOST,
                cookies: EdgeCookies::from_fields(std::iter::once(cookie.as_bytes())),
                project: &project,
                policy: &policy,
            };
            SignIns::redirect_to_platform(request, "/", 4096, &seals, &directory, now).unwrap()
        };
        let set_cookies = depart("", NOW).set_cookies;
        let cookie = set_cookies.first().expect("the browser has no secret yet");
        let cookie = cookie.split(';').next().unwrap();
        for (now, is_valid) in [
            (NOW - 6, false),
            (NOW - 5, true),
            (NOW + 1799, true),
            (NOW + 1800, false),
        ] {
            let departure = depart(cookie, now);
            let has_secret = departure.set_cookies.is_empty();
            assert_eq!(has_secret, is_valid, "{}", now - NOW);
        }
    }

    /// ED-2: a code with a lifetime of more than a minute is rejected.
    #[test]
    fn ed_2_a_code_is_valid_for_a_minute() {
        let directory = directory();
        let project = directory.project("prj_1").unwrap();
        let request = SignInRequest {
            host: HOST,
            authority: HOST,
            cookies: EdgeCookies::from_fields(std::iter::empty()),
            project: &project,
            policy: &TunnelPolicy::compile(&TunnelProperties::default()),
        };
        for (issued, ends, is_valid) in [
            (0, 60, true),
            (0, 61, false),
            (5, 65, true),
            (6, 66, false),
            (-59, 1, true),
            (-60, 0, false),
        ] {
            let claims = SignInClaims {
                iss: "https://platform.example".to_owned(),
                aud: format!("https://{HOST}"),
                sub: "ann".to_owned(),
                nonce: String::new(),
                jti: "one".to_owned(),
                iat: NOW + issued,
                exp: NOW + ends,
                sid: None,
                identity: None,
                name: None,
                email: None,
            };
            let checked = check(&claims, request, &directory, NOW);
            assert_eq!(checked.is_ok(), is_valid, "{issued} to {ends}: {checked:?}");
        }
    }

    #[test]
    fn a_target_that_is_too_long_loses_its_query_and_then_its_path() {
        let seals = seals();
        let round_trip = |target: &str| {
            let word = format!("{}.3.{}", "n".repeat(43), "0".repeat(16));
            let sealed =
                RedirectTarget::seal(&seals, HOST, &word, target, MAX_STATE_TARGET).unwrap();
            assert!(sealed.len() < 2048, "{}", sealed.len());
            RedirectTarget::open(&seals, HOST, &sealed).unwrap().1
        };
        let query = |length: usize| format!("/path?{}", "q".repeat(length - 6));
        assert_eq!(round_trip(&query(1400)), query(1400));
        assert_eq!(round_trip(&query(1401)), "/path");
        assert_eq!(round_trip(&format!("/{}", "p".repeat(1400))), "/");
    }
}
