//! The device grant (RFC 8628): a person approves this program in a browser, here or elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    process::Stdio,
    time::Duration,
};

use api::control::oauth::{DeviceAuthorization, TokenResponse};
use client::Token;
use serde::Serialize;
use serde_json::json;
use tokio::{process::Command, time::Instant};
use types::permission::{CONTROL_PLANE_BUNDLES, Permission, Permissions};

use crate::{
    environment,
    failure::{Code, Failure},
    output,
    output::Format,
    platform::{AuthorizationServer, OauthFailure},
    prompt,
};

/// What is asked for where nothing is said: to create a project and publish in it. Nothing that
/// gives access to others (CP-14).
pub(super) fn default_scope() -> Permissions {
    CONTROL_PLANE_BUNDLES
        .iter()
        .filter(|bundle| bundle.name == "create-project-and-expose-service")
        .flat_map(|bundle| bundle.permissions)
        .copied()
        .chain([Permission::AccountWorkspacesReadOnly])
        .collect()
}

/// Shows the code, and waits until somebody decided.
pub(super) async fn token(
    server: &AuthorizationServer,
    scope: Permissions,
    format: Format,
    with_browser: bool,
) -> Result<Token, Failure> {
    let given = server.authorize_device(scope, &source()).await?;
    let end = Instant::now() + Duration::from_secs(given.expires_in.into());
    show(&given, format)?;
    if with_browser && prompt::is_possible() && environment::has_display() {
        open_browser(&given.verification_uri_complete);
    }
    let issued = wait(server, &given, end).await?;
    if let Some(missing) = missing(scope, &issued.scope) {
        output::message(&format!(
            "less was granted than was asked for: without {missing}"
        ));
    }
    Ok(Token::new(&issued.access_token))
}

/// What a program shows to its user.
#[derive(Serialize)]
struct DeviceInstructions<'a> {
    verification_uri: &'a str,
    verification_uri_complete: &'a str,
    user_code: &'a str,
    expires_in: u32,
}

fn show(given: &DeviceAuthorization, format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        output::json(&DeviceInstructions {
            verification_uri: &given.verification_uri,
            verification_uri_complete: &given.verification_uri_complete,
            user_code: &given.user_code,
            expires_in: given.expires_in,
        })?;
    }
    output::message(&format!(
        "to sign in, open {}\nand enter the code {}\n(or open {} and compare the code)",
        given.verification_uri, given.user_code, given.verification_uri_complete
    ));
    Ok(())
}

/// A browser is a convenience: the address stands above.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        tracing::debug!(%error, program, "no browser was opened");
    }
}

async fn wait(
    server: &AuthorizationServer,
    given: &DeviceAuthorization,
    end: Instant,
) -> Result<TokenResponse, Failure> {
    let progress = Progress::begin(end);
    let interval = Duration::from_secs(given.interval.max(1).into());
    let mut pace = Pace {
        interval,
        wait: interval,
    };
    loop {
        let next = Instant::now() + pace.wait;
        if next >= end {
            tokio::time::sleep_until(end).await;
            return Err(expired());
        }
        progress.until(next).await;
        let answer = server.redeem(&given.device_code).await;
        match answer {
            Ok(issued) => return Ok(issued),
            Err(failure) => pace.after(failure)?,
        }
    }
}

/// How long it is from one question to the next.
#[derive(Debug, PartialEq, Eq)]
struct Pace {
    /// What the platform asked for.
    interval: Duration,
    /// This time.
    wait: Duration,
}

impl Pace {
    /// What a failure means for the next question (RFC 8628 section 3.5); an error where there is
    /// none any more.
    fn after(&mut self, failure: OauthFailure) -> Result<(), Failure> {
        match failure.code() {
            Some("authorization_pending") => self.wait = self.interval,
            Some("slow_down") => {
                self.interval = self.interval.saturating_add(SLOWER);
                self.wait = self.interval;
            }
            Some("expired_token") => return Err(expired()),
            Some("access_denied") => {
                return Err(Failure::new(Code::Refused, "the login was denied"));
            }
            _ if failure.is_transient() => {
                tracing::debug!(?failure, "asked again later");
                self.wait = self.wait.saturating_mul(2).min(LONGEST.max(self.interval));
            }
            _ => return Err(failure.into()),
        }
        Ok(())
    }
}

fn expired() -> Failure {
    Failure::new(Code::Failed, "nobody approved the login in time").hint("try `svc login` again")
}

/// The line that says what is waited for: with a clock at a terminal, once elsewhere.
struct Progress {
    end: Instant,
    is_live: bool,
}

impl Progress {
    fn begin(end: Instant) -> Self {
        let is_live = io::stderr().is_terminal();
        if !is_live {
            output::message("waiting for approval");
        }
        Self { end, is_live }
    }

    async fn until(&self, then: Instant) {
        let mut now = Instant::now();
        while self.is_live && now < then {
            let left = self.end.saturating_duration_since(now).as_secs();
            let (minutes, seconds) = (left / 60, left % 60);
            rewrite(&format!(
                "waiting for approval, the code ends in {minutes}:{seconds:02}"
            ));
            tokio::time::sleep_until(then.min(now + TICK)).await;
            now = Instant::now();
        }
        tokio::time::sleep_until(then).await;
    }
}

impl Drop for Progress {
    /// What comes next begins on a clean line.
    fn drop(&mut self) {
        if self.is_live {
            rewrite("");
        }
    }
}

/// Writes over the line.
fn rewrite(text: &str) {
    let mut out = io::stderr().lock();
    // A terminal that is gone needs no line.
    drop(write!(out, "\r\x1b[K{text}").and_then(|()| out.flush()));
}

/// What is shown to the person who approves.
fn source() -> String {
    let mut sayings = vec![
        json!({"key": "agent", "value": "svc", "label": "Program"}),
        json!({"key": "version", "value": env!("CARGO_PKG_VERSION"), "label": "Version"}),
        json!({"key": "os", "value": std::env::consts::OS, "label": "System"}),
        json!({"key": "arch", "value": std::env::consts::ARCH, "label": "Architecture"}),
    ];
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.chars().filter(char::is_ascii_graphic).collect();
    if (1..=MAX_HOSTNAME).contains(&name.len()) {
        sayings.push(json!({"key": "hostname", "value": name, "label": "Host"}));
    }
    serde_json::Value::from(sayings).to_string()
}

/// What was asked for and not granted, where there is something.
fn missing(asked: Permissions, granted: &str) -> Option<Permissions> {
    let granted: Permissions = granted.split(' ').flat_map(str::parse).collect();
    let missing: Permissions = asked.iter().filter(|one| !granted.contains(*one)).collect();
    (missing != Permissions::NONE).then_some(missing)
}

/// RFC 8628 section 3.5.
const SLOWER: Duration = Duration::from_secs(5);
/// A platform that is away is asked this often at least.
const LONGEST: Duration = Duration::from_secs(30);
/// Between two pictures of the clock.
const TICK: Duration = Duration::from_secs(1);
/// RFC 1035 section 2.3.4, as text.
const MAX_HOSTNAME: usize = 253;

#[cfg(test)]
mod tests {
    use api::control::oauth::OauthError;

    use super::*;

    fn refused(error: &str) -> OauthFailure {
        OauthFailure::Refused(OauthError {
            error: error.to_owned(),
            error_description: "no".to_owned(),
        })
    }

    /// CP-14: what gives access to others is asked for only by a person who says so.
    #[test]
    fn cp_14_a_login_asks_for_no_power_over_access() {
        let scope = default_scope();
        assert!(scope.contains(Permission::AccountWorkspacesReadOnly));
        assert!(scope.contains(Permission::TunnelsTunnelsCreateDelete));
        for grave in [
            Permission::AccountTokensCreate,
            Permission::AccountCredentialsReadOnly,
            Permission::AccountCredentialsReadWrite,
        ] {
            assert!(!scope.contains(grave), "{grave}");
        }
    }

    /// RFC 8628 section 3.5: slower for good, and less often where nobody answers.
    #[test]
    fn questions_come_as_slowly_as_they_are_wanted() {
        let five = Duration::from_secs(5);
        let mut pace = Pace {
            interval: five,
            wait: five,
        };
        for (error, seconds) in [
            ("authorization_pending", 5),
            ("slow_down", 10),
            ("authorization_pending", 10),
            ("slow_down", 15),
            ("temporarily_unavailable", 30),
            ("server_error", 30),
            ("authorization_pending", 15),
        ] {
            pace.after(refused(error)).unwrap();
            assert_eq!(pace.wait.as_secs(), seconds, "{error}");
        }
        for (error, code) in [
            ("access_denied", Code::Refused),
            ("expired_token", Code::Failed),
            ("invalid_grant", Code::Failed),
        ] {
            let failure = pace.after(refused(error)).unwrap_err();
            assert_eq!(failure.code(), code, "{error}");
        }
    }

    #[test]
    fn what_was_not_granted_is_named() {
        let scope = default_scope();
        assert_eq!(missing(scope, &scope.to_string()), None);
        let less = missing(scope, "account.workspaces.read-only").unwrap();
        assert!(!less.contains(Permission::AccountWorkspacesReadOnly));
        assert!(less.contains(Permission::AccountProjectsReadWrite));
    }
}
