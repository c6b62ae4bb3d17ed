//! The device grant (RFC 8628): the user approves this program in a browser, on this or another
//! device.

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

use crate::failure::{Code, Failure};
use crate::output::Format;
use crate::platform::{AuthorizationServer, OauthFailure};
use crate::process::environment;
use crate::{output, prompt};

/// The default scope: create a project and publish in it. It excludes permissions that grant access
/// to other users (CP-14).
pub(super) fn default_scope() -> Permissions {
    CONTROL_PLANE_BUNDLES
        .iter()
        .filter(|bundle| bundle.name == "create-project-and-expose-service")
        .flat_map(|bundle| bundle.permissions)
        .copied()
        .chain([Permission::AccountWorkspacesReadOnly])
        .collect()
}

/// Shows the code, and waits for the user's decision.
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
            "fewer permissions were granted than requested; missing: {missing}"
        ));
    }
    Ok(Token::new(&issued.access_token))
}

/// The instructions for the user, as JSON.
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

/// Opens a browser as a convenience. The address is printed as well.
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
    let mut pace = PollInterval {
        interval,
        wait: interval,
    };
    loop {
        let next = Instant::now() + pace.wait;
        if next >= end {
            tokio::time::sleep_until(end).await;
            return Err(expired());
        }
        progress.wait_until(next).await;
        let answer = server.redeem(&given.device_code).await;
        match answer {
            Ok(issued) => return Ok(issued),
            Err(failure) => pace.after(failure)?,
        }
    }
}

/// The polling interval.
#[derive(Debug, PartialEq, Eq)]
struct PollInterval {
    /// The interval that the platform requested.
    interval: Duration,
    /// The wait before the next request.
    wait: Duration,
}

impl PollInterval {
    /// Adjusts the interval after a failure (RFC 8628 section 3.5). Returns an error if polling
    /// must end.
    fn after(&mut self, failure: OauthFailure) -> Result<(), Failure> {
        match failure.code() {
            Some("authorization_pending") => self.wait = self.interval,
            Some("slow_down") => {
                self.interval = self.interval.saturating_add(SLOW_DOWN_STEP);
                self.wait = self.interval;
            }
            Some("expired_token") => return Err(expired()),
            Some("access_denied") => {
                return Err(Failure::new(Code::Refused, "the login was denied"));
            }
            _ if failure.is_transient() => {
                tracing::debug!(?failure, "asked again later");
                self.wait = self
                    .wait
                    .saturating_mul(2)
                    .min(MAX_INTERVAL.max(self.interval));
            }
            _ => return Err(failure.into()),
        }
        Ok(())
    }
}

fn expired() -> Failure {
    Failure::new(Code::Failed, "the login was not approved in time").hint("try `svc login` again")
}

/// Progress line: a countdown at a terminal, a single line otherwise.
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

    async fn wait_until(&self, then: Instant) {
        let mut now = Instant::now();
        while self.is_live && now < then {
            let left = self.end.saturating_duration_since(now).as_secs();
            let (minutes, seconds) = (left / 60, left % 60);
            rewrite(&format!(
                "waiting for approval, the code expires in {minutes}:{seconds:02}"
            ));
            tokio::time::sleep_until(then.min(now + TICK)).await;
            now = Instant::now();
        }
        tokio::time::sleep_until(then).await;
    }
}

impl Drop for Progress {
    /// Later output starts on a clean line.
    fn drop(&mut self) {
        if self.is_live {
            rewrite("");
        }
    }
}

/// Overwrites the line.
fn rewrite(text: &str) {
    let mut out = io::stderr().lock();
    // Errors are ignored: without a terminal, the line is not needed.
    drop(write!(out, "\r\x1b[K{text}").and_then(|()| out.flush()));
}

/// The device description that the approving user sees.
fn source() -> String {
    let mut details = vec![
        json!({"key": "agent", "value": "svc", "label": "Program"}),
        json!({"key": "version", "value": env!("CARGO_PKG_VERSION"), "label": "Version"}),
        json!({"key": "os", "value": std::env::consts::OS, "label": "System"}),
        json!({"key": "arch", "value": std::env::consts::ARCH, "label": "Architecture"}),
    ];
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.chars().filter(char::is_ascii_graphic).collect();
    if (1..=MAX_HOSTNAME).contains(&name.len()) {
        details.push(json!({"key": "hostname", "value": name, "label": "Host"}));
    }
    serde_json::Value::from(details).to_string()
}

/// Requested permissions that were not granted, if there are any.
fn missing(asked: Permissions, granted: &str) -> Option<Permissions> {
    let granted: Permissions = granted.split(' ').flat_map(str::parse).collect();
    let missing: Permissions = asked.iter().filter(|one| !granted.contains(*one)).collect();
    (missing != Permissions::NONE).then_some(missing)
}

/// RFC 8628 section 3.5.
const SLOW_DOWN_STEP: Duration = Duration::from_secs(5);
/// Maximum interval while the platform is unreachable.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// Update interval of the countdown.
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

    /// CP-14: permissions that grant access are requested only if the user names them.
    #[test]
    fn cp_14_a_login_requests_no_access_permissions() {
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

    /// RFC 8628 section 3.5: permanently slower after `slow_down`, and less often if the platform
    /// is unreachable.
    #[test]
    fn polling_follows_the_requested_interval() {
        let five = Duration::from_secs(5);
        let mut pace = PollInterval {
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
    fn missing_permissions_are_named() {
        let scope = default_scope();
        assert_eq!(missing(scope, &scope.to_string()), None);
        let less = missing(scope, "account.workspaces.read-only").unwrap();
        assert!(!less.contains(Permission::AccountWorkspacesReadOnly));
        assert!(less.contains(Permission::AccountProjectsReadWrite));
    }
}
