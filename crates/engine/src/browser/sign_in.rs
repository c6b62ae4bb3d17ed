//! The way through the platform and back (ED-2).
//!
//! A browser without a session is sent to the platform with the hash of a secret that it holds in
//! a cookie of the tunnel's host, and comes back with a code. A code is good at one host, in the
//! browser that holds the secret, for a minute, once: nobody can have somebody else use a code of
//! theirs, or use one of somebody else.

use api::link::{SIGN_IN, SignInClaims};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use types::permission::Permission;

use super::cookies::{self, EdgeCookies};
use super::once::{NotNow, Once};
use super::seals::{Purpose, Seals};
use super::session::Session;
use crate::access::{Tenancy, Tokens};
use crate::agents::random_bytes;
use crate::directory::{Directory, Project};

/// Codes that were used.
#[derive(Debug)]
pub(crate) struct SignIns {
    used: Once,
}

/// Where a browser is, as far as a sign-in is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignInRequest<'a> {
    /// Name of the tunnel's host, in lower case.
    pub(crate) host: &'a str,
    /// The same with the port where it is not 443: how the browser writes it.
    pub(crate) authority: &'a str,
    pub(crate) cookies: EdgeCookies<'a>,
    pub(crate) project: &'a Project,
}

/// A browser that is sent away to sign in.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) location: String,
    /// `None`: it holds the secret already.
    pub(crate) set_cookie: Option<String>,
}

/// A browser that came back, and is sent on.
#[derive(Debug)]
pub(crate) struct SignInCallback {
    pub(crate) location: String,
    pub(crate) set_cookies: Vec<String>,
}

/// Why a browser that came back is not signed in. For the log; the page says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSignedIn {
    #[error("the state is not one of this host's")]
    State,
    #[error("the sign-in was not begun in this browser, or too long ago")]
    OtherBrowser,
    #[error("the code is no good: {0}")]
    Code(&'static str),
    #[error("the code was used before")]
    Used,
    #[error("the person may not use the project")]
    NotAllowed,
    #[error("too many sign-ins at once")]
    Busy,
}

impl NotSignedIn {
    /// The person is who they say, and has no part in the project.
    pub(crate) fn is_not_allowed(self) -> bool {
        self == Self::NotAllowed
    }
}

impl Default for SignIns {
    fn default() -> Self {
        Self {
            used: Once::new(MAX_CODE_SECONDS + LEEWAY_SECONDS, USED_CODES),
        }
    }
}

impl SignIns {
    /// Sends a browser to sign in, to come back to `target` (path and query) later. `None` while
    /// the platform's address is not known.
    pub(crate) fn depart(
        asked: SignInRequest<'_>,
        target: &str,
        seals: &Seals,
        directory: &Directory,
        now: i64,
    ) -> Option<Departure> {
        let platform = directory.platform()?;
        // Two tabs sign in with one secret, or the second would spoil the first.
        let held = secret_of(asked, seals, now);
        let (secret, set_cookie) = if let Some(secret) = held {
            (secret, None)
        } else {
            let mut secret = now.to_be_bytes().to_vec();
            secret.extend_from_slice(&random_bytes::<32>());
            let value = seals.sign(Purpose::SignIn, &[asked.host.as_bytes()], &secret);
            let cookie = cookies::set(cookies::SIGN_IN, &value, PENDING_SECONDS);
            (secret, Some(cookie))
        };
        let nonce = nonce_of(&secret);
        let state = Targets::seal(seals, asked.host, &nonce, target, MAX_STATE_TARGET)?;
        let base = platform.base_url.trim_end_matches('/');
        let host = percent_encoded(asked.authority);
        Some(Departure {
            location: format!("{base}{SIGN_IN}?host={host}&nonce={nonce}&state={state}"),
            set_cookie,
        })
    }

    /// Receives a browser that came back with a code and a state.
    pub(crate) fn arrive(
        &self,
        asked: SignInRequest<'_>,
        (code, state): (&str, &str),
        seals: &Seals,
        (tokens, tenancy): (&Tokens, &Tenancy),
        now: i64,
    ) -> Result<SignInCallback, NotSignedIn> {
        let directory = tenancy.directory().ok_or(NotSignedIn::State)?;
        let (nonce, target) = Targets::open(seals, asked.host, state).ok_or(NotSignedIn::State)?;
        // Never anywhere but to this host: the authority is ours, whatever the target begins with.
        let location = format!("https://{}{target}", asked.authority);
        let Some(secret) = secret_of(asked, seals, now) else {
            // A second tab, when the first was faster. The code is not looked at.
            let cookie = asked
                .cookies
                .session
                .value()
                .ok_or(NotSignedIn::OtherBrowser)?;
            let session = Session::read(cookie, seals, asked.host, asked.project);
            let holds = session.is_ok_and(|session| session.holds(directory, now).is_ok());
            let set_cookies = Vec::new();
            return holds
                .then_some(SignInCallback {
                    location,
                    set_cookies,
                })
                .ok_or(NotSignedIn::OtherBrowser);
        };
        let claims = tokens
            .sign_in(code)
            .map_err(|_| NotSignedIn::Code("its signature or form"))?;
        check(&claims, asked, directory, now).map_err(NotSignedIn::Code)?;
        let expected = nonce_of(&secret);
        let same = |given: &str| bool::from(given.as_bytes().ct_eq(expected.as_bytes()));
        if !same(&claims.nonce) || !same(&nonce) {
            return Err(NotSignedIn::OtherBrowser);
        }
        let ended_until = directory
            .person(&claims.sub)
            .map(|person| person.sessions_after)
            .ok_or(NotSignedIn::NotAllowed)?;
        if claims.iat < ended_until {
            return Err(NotSignedIn::Code("from before all sessions were ended"));
        }
        let permission = Permission::TunnelsStreamsCreateDelete;
        tenancy
            .require_of(Some(&claims.sub), None, asked.project, permission)
            .map_err(|_| NotSignedIn::NotAllowed)?;
        self.used
            .take(claims.jti.as_bytes(), &asked.project.id, now)
            .map_err(|refused| match refused {
                NotNow::Used => NotSignedIn::Used,
                NotNow::Full => NotSignedIn::Busy,
            })?;
        if claims
            .sid
            .as_deref()
            .is_some_and(|session| directory.is_ended(session))
        {
            return Err(NotSignedIn::Code("its session at the platform was ended"));
        }
        let session = Session {
            user_id: claims.sub,
            issued_at: now.max(ended_until.saturating_add(1)),
            id: claims.jti,
            platform_session: claims.sid.filter(|sid| sid.len() <= MAX_SHOWN),
            name: claims.name.filter(|name| name.len() <= MAX_SHOWN),
            email: claims.email.filter(|email| email.len() <= MAX_SHOWN),
        };
        Ok(SignInCallback {
            location,
            set_cookies: vec![
                session.set_cookie(seals, asked.host, asked.project),
                cookies::set(cookies::SIGN_IN, "", 0),
            ],
        })
    }
}

/// Where browsers are to go back to. Only what this edge sealed for this host is gone to.
pub(super) struct Targets;

impl Targets {
    /// Seals path and query, with a word that it belongs to.
    /// One longer than `longest` bytes loses its query, or leads to the start.
    pub(super) fn seal(
        seals: &Seals,
        host: &str,
        word: &str,
        target: &str,
        longest: usize,
    ) -> Option<String> {
        let path = target.split('?').next().unwrap_or_default();
        let shorter = [target, path, "/"];
        let target = shorter.into_iter().find(|it| it.len() <= longest)?;
        seals.seal(host, format!("{word} {target}").as_bytes())
    }

    /// The word and the target.
    pub(super) fn open(seals: &Seals, host: &str, sealed: &str) -> Option<(String, String)> {
        let text = String::from_utf8(seals.open(host, sealed)?).ok()?;
        let (word, target) = text.split_once(' ')?;
        target
            .starts_with('/')
            .then(|| (word.to_owned(), target.to_owned()))
    }
}

/// Judges what a code says against where it came. The nonce is judged apart.
fn check(
    claims: &SignInClaims,
    asked: SignInRequest<'_>,
    directory: &Directory,
    now: i64,
) -> Result<(), &'static str> {
    let platform = directory.platform().ok_or("there is no platform")?;
    if claims.iss.trim_end_matches('/') != platform.base_url.trim_end_matches('/') {
        return Err("it is another platform's");
    }
    if claims.aud.strip_prefix("https://") != Some(asked.authority) {
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

/// The secret that the browser holds, if it is ours and not too old.
fn secret_of(asked: SignInRequest<'_>, seals: &Seals, now: i64) -> Option<Vec<u8>> {
    let cookie = asked.cookies.sign_in.value()?;
    let secret = seals.check(Purpose::SignIn, &[asked.host.as_bytes()], cookie)?;
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

/// An authority has letters, digits, `-`, `.` and at most a colon or brackets.
fn percent_encoded(authority: &str) -> String {
    let mut out = String::with_capacity(authority.len() + 4);
    for character in authority.chars() {
        match character {
            ':' => out.push_str("%3A"),
            '[' => out.push_str("%5B"),
            ']' => out.push_str("%5D"),
            other => out.push(other),
        }
    }
    out
}

/// Seconds for which a browser may be away to sign in: a password, a second factor, a mail.
const PENDING_SECONDS: i64 = 30 * 60;
/// Seconds that a code lives at most.
const MAX_CODE_SECONDS: i64 = 60;
/// What the clocks of platform and engine may differ by.
const LEEWAY_SECONDS: i64 = 5;
/// Codes that are remembered: five hundred sign-ins a second, for as long as a code lives.
const USED_CODES: usize = 65_536;
/// Longest target that comes back from a sign-in, in bytes: sealed with its nonce, it is a `state`
/// of less than 2048 characters, which is what platforms take.
const MAX_STATE_TARGET: usize = 1400;
/// Longest name and address that are shown, in bytes: cookies are sent with every request.
const MAX_SHOWN: usize = 256;

#[cfg(test)]
mod tests {
    use api::control::settings::ProjectSettings;
    use api::link::{Item, Limits, Platform, Project as Told};
    use credentials::Secret;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const HOST: &str = "web-0000000a.t.engine.localhost";

    fn seals() -> Seals {
        Seals::derive(&Secret::new("of the cluster")).unwrap()
    }

    /// An engine that was told of one project.
    fn directory() -> Directory {
        let directory = Directory::default();
        let platform = Platform {
            base_url: "https://platform.example".to_owned(),
            cluster_domain: "engine.localhost".to_owned(),
        };
        let project = Told {
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
        };
        directory.replace(platform, vec![Item::Project(Box::new(project))]);
        directory
    }

    /// ED-2: the secret of a browser that is away to sign in is good for half an hour.
    #[test]
    fn ed_2_a_browser_is_away_for_half_an_hour_at_most() {
        let (directory, seals) = (directory(), seals());
        let project = directory.project("prj_1").unwrap();
        let depart = |cookie: &str, now| {
            let asked = SignInRequest {
                host: HOST,
                authority: HOST,
                cookies: EdgeCookies::among(std::iter::once(cookie.as_bytes())),
                project: &project,
            };
            SignIns::depart(asked, "/", &seals, &directory, now).unwrap()
        };
        let cookie = depart("", NOW).set_cookie.expect("it holds no secret yet");
        let cookie = cookie.split(';').next().unwrap();
        for (now, is_held) in [
            (NOW - 6, false),
            (NOW - 5, true),
            (NOW + 1799, true),
            (NOW + 1800, false),
        ] {
            let departure = depart(cookie, now);
            assert_eq!(departure.set_cookie.is_none(), is_held, "{}", now - NOW);
        }
    }

    /// ED-2: a code that says more of itself than a minute is none of the platform's.
    #[test]
    fn ed_2_a_code_is_good_for_a_minute() {
        let directory = directory();
        let project = directory.project("prj_1").unwrap();
        let asked = SignInRequest {
            host: HOST,
            authority: HOST,
            cookies: EdgeCookies::among(std::iter::empty()),
            project: &project,
        };
        for (issued, ends, is_good) in [
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
                name: None,
                email: None,
            };
            let checked = check(&claims, asked, &directory, NOW);
            assert_eq!(checked.is_ok(), is_good, "{issued} to {ends}: {checked:?}");
        }
    }

    #[test]
    fn a_target_that_is_too_long_loses_its_query_and_then_its_path() {
        let seals = seals();
        let comes_back = |target: &str| {
            let sealed = Targets::seal(&seals, HOST, "nonce", target, MAX_STATE_TARGET).unwrap();
            assert!(sealed.len() < 2048, "{}", sealed.len());
            Targets::open(&seals, HOST, &sealed).unwrap().1
        };
        let query = |length: usize| format!("/path?{}", "q".repeat(length - 6));
        assert_eq!(comes_back(&query(1400)), query(1400));
        assert_eq!(comes_back(&query(1401)), "/path");
        assert_eq!(comes_back(&format!("/{}", "p".repeat(1400))), "/");
    }
}
