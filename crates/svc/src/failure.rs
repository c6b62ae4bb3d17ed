//! Failures of commands: a code with a name, the cause in one line, the next step in another line,
//! and an exit code for scripts. Text and JSON contain the same information.

use std::{borrow::Cow, error::Error, fmt, io, process::ExitCode};

use client::{
    Agent, ConnectError, Refusal, RefusalKind, api::ApiError, error::Step, proxy::ProxyFault,
};
use rustls::{AlertDescription, CertificateError};
use serde_json::{Value, json};

use crate::args::filters;
use crate::output::{Format, plain};

pub(crate) use types::causes::chain;

/// The failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    name: Option<Cow<'static, str>>,
    message: String,
    hint: Option<String>,
    /// The exit code of a remote command, which replaces the one of `code`.
    remote_status: Option<u8>,
}

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// The reader closed our output. This is not an error.
    OutputClosed = 0,
    /// Something failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Authentication, a permission or a boundary.
    Refused = 3,
    /// A name is in use by another owner, or was taken over.
    Conflict = 4,
    /// An option that this engine does not support.
    NotAvailable = 5,
}

impl Code {
    /// The default name of a failure.
    const fn name(self) -> &'static str {
        match self {
            Self::OutputClosed => "output_closed",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Refused => "refused",
            Self::Conflict => "conflict",
            Self::NotAvailable => "feature_unavailable",
        }
    }
}

impl Failure {
    /// A failure with a code.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            name: None,
            message: message.into(),
            hint: None,
            remote_status: None,
        }
    }

    /// A general failure: the failed action, and the error with its causes.
    pub(crate) fn from_error(what: &str, error: impl Error) -> Self {
        Self::new(Code::Failed, format!("{what}: {}", chain(&error)))
    }

    /// A local address that a program cannot listen on: the failed action, and the system's error.
    pub(crate) fn of_bind(what: &str, error: &io::Error) -> Self {
        let failure = Self::from_error(what, error);
        match error.kind() {
            io::ErrorKind::AddrInUse => failure
                .named("port_in_use")
                .hint("port 0 selects a free one"),
            io::ErrorKind::PermissionDenied => {
                failure.hint("ports below 1024 need a privilege on most systems")
            }
            _ => failure,
        }
    }

    /// A remote command has ended with this exit code, and this process exits with the same one.
    /// Nothing is printed.
    pub(crate) fn remote_exit(status: u8) -> Self {
        Self {
            remote_status: Some(status),
            ..Self::new(Code::Failed, "the command failed")
        }
    }

    /// An invalid command line or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// Sets a stable name, which is more specific than the exit code.
    #[must_use]
    pub(crate) fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        Self {
            name: (!name.is_empty()).then_some(name),
            ..self
        }
    }

    /// Adds the next step.
    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// The failure of an agent that is disconnected for this reason, and true if the configuration is
    /// more likely at fault than the network. `None` if the engine gave the reason.
    pub(crate) fn of_disconnection(agent: &Agent, reason: &str) -> Option<(Self, bool)> {
        let error = agent
            .last_failure()
            .filter(|error| chain(error) == reason)?;
        let is_lasting = error.is_lasting();
        Some((error.into(), is_lasting))
    }

    /// Replaces the cause by a more specific one.
    #[must_use]
    pub(crate) fn with_message(self, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..self
        }
    }

    /// The cause, without the next step.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The code.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The stable name. For an API error it is the code of the problem.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.code.name())
    }

    /// The next step.
    pub(crate) fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The failure as a JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({
            "code": self.name(),
            "message": self.message,
            "exit_code": self.code as u8,
        });
        if let (Some(hint), Some(error)) = (&self.hint, error.as_object_mut()) {
            error.insert("hint".to_owned(), json!(hint));
        }
        json!({ "error": error })
    }

    /// Prints the failure, and returns the exit code of the process.
    #[expect(clippy::print_stderr, reason = "the only place that prints a failure")]
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        if let Some(status) = self.remote_status {
            return ExitCode::from(status);
        }
        if self.code != Code::OutputClosed {
            match format {
                Format::Text => eprintln!("{self}"),
                Format::Json => eprintln!("{}", self.to_json()),
            }
        }
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.name(), self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl From<&Refusal> for Failure {
    fn from(refusal: &Refusal) -> Self {
        let message = plain(&refusal.message);
        match refusal.kind {
            RefusalKind::Unauthorized => Self::new(Code::Refused, message)
                .named("unauthorized")
                .hint(TOKEN),
            RefusalKind::Conflict => Self::new(Code::Conflict, message).hint(
                "`svc tunnels` shows which agent uses it; choose another with --name or \
                       --hostname",
            ),
            RefusalKind::TakenOver => Self::new(Code::Conflict, message)
                .named("taken_over")
                .hint("`svc clients` shows the agents; give each its own --name to run several"),
            RefusalKind::ClosedByCaller => Self::new(Code::Failed, message)
                .named("closed_by_caller")
                .hint("run the command again to open the tunnel again"),
            // The engine has named the command that helps.
            RefusalKind::NotAvailable if message.contains("`svc ") => {
                Self::new(Code::NotAvailable, message)
            }
            RefusalKind::NotAvailable => Self::new(Code::NotAvailable, message)
                .hint("leave the option out, or use an engine that supports it"),
            RefusalKind::NotFound => Self::new(Code::Failed, message)
                .named("tunnel_not_found")
                .hint("`svc tunnels` shows the names that are online"),
            RefusalKind::Invalid => Self::new(Code::Failed, message).named("invalid_request"),
            _ => Self::new(Code::Failed, message),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let failed = |name: &'static str| Self::new(Code::Failed, one_line(&error)).named(name);
        match &error {
            ConnectError::Refused(refusal) => Self::from(refusal),
            ConnectError::Trust(_) => Self::usage(chain(&error))
                .named("ca_file")
                .hint("check --ca-file: the CA that signed the engine's certificate, in PEM form"),
            ConnectError::Address(_) => Self::usage(chain(&error)).hint("check --engine"),
            ConnectError::Network {
                step: Step::Handshake,
                source,
                ..
            }
            | ConnectError::Certificate { source, .. }
            | ConnectError::NotAnEngine { source, .. } => {
                tls_failure(source).unwrap_or_else(|| {
                    failed("engine_handshake").hint("an engine with a private CA needs --ca-file")
                })
            }
            ConnectError::ProxySetting(_) => Self::usage(chain(&error))
                .named("proxy")
                .hint("`--proxy none` connects directly"),
            ConnectError::Proxy { source, .. } => match source {
                ProxyFault::LoginRequired
                | ProxyFault::LoginRefused
                | ProxyFault::LoginUnsupported => failed("proxy_login").hint(
                    "set HTTPS_PROXY or SVC_PROXY to http://USER:PASSWORD@HOST:PORT, with special \
                     characters percent-encoded",
                ),
                ProxyFault::Refused { .. } => failed("proxy_refused").hint(
                    "the proxy must allow CONNECT to the engine's port; `--proxy none` connects \
                     directly",
                ),
                _ => failed("proxy_unreachable")
                    .hint("check HTTPS_PROXY or --proxy; `--proxy none` connects directly"),
            },
            ConnectError::Network {
                step: Step::Resolve,
                ..
            }
            | ConnectError::TimedOut(Step::Resolve) => failed("engine_not_resolved")
                .hint("check the spelling of --engine; the name does not resolve"),
            ConnectError::TimedOut(Step::Handshake) => failed("engine_timeout")
                .hint("the port accepts connections but sends nothing: is it the engine's port?"),
            ConnectError::Network { .. } => failed("engine_unreachable").hint(
                "is the engine running? `svc context show` shows where its address comes from, \
                 `svc up` starts one",
            ),
            ConnectError::TimedOut(_) => failed("engine_timeout").hint(
                "is the engine running, and does a firewall block the connection? see `svc doctor`",
            ),
            ConnectError::Protocol(_) => failed("engine_protocol")
                .hint("is --engine the address of an engine? run `svc doctor`"),
            ConnectError::Unavailable(_) => {
                failed("engine_unavailable").hint("try again in a moment")
            }
            ConnectError::DataPath => failed("data_path")
                .hint("a firewall allows the first connection and blocks further ones"),
            _ => Self::new(Code::Failed, one_line(&error)),
        }
    }
}

/// Formats an error that contains foreign text as one line.
fn one_line(error: &dyn Error) -> String {
    plain(&chain(error))
}

/// The failure for a TLS handshake error, if the cause is known.
fn tls_failure(source: &io::Error) -> Option<Failure> {
    let error = source.get_ref()?.downcast_ref::<rustls::Error>()?;
    let failed = |name, message: &str| Failure::new(Code::Failed, message).named(name);
    Some(match error {
        // A bad signature: another authority of the same name.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => failed(
            "engine_not_trusted",
            "the engine's certificate is signed by a CA that is not trusted here",
        )
        .hint("an engine with a private CA needs --ca-file; `svc doctor` shows who signed it"),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => failed(
            "engine_wrong_name",
            "the engine's certificate is for other names than the one in --engine",
        )
        .hint("use a name that the certificate covers; `svc doctor` shows them"),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => failed(
            "engine_certificate_expired",
            "the engine's certificate has expired",
        )
        .hint(
            "renew it on the engine, or correct the clock of this machine; `svc doctor` compares \
             the clocks",
        ),
        rustls::Error::AlertReceived(AlertDescription::UnrecognisedName) => failed(
            "engine_wrong_name",
            "the server at this address does not serve the name in --engine",
        )
        .hint("the engine has another name: use that in --engine"),
        rustls::Error::InvalidMessage(_) => failed(
            "engine_protocol",
            "not an svc engine: the port does not speak TLS",
        )
        .hint("is it the engine's port? metrics and the plain listener use other ports"),
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => failed(
            "engine_protocol",
            "not an svc engine: the port uses TLS, but not the engine's protocols",
        )
        .hint("is --engine the address of an engine? run `svc doctor`"),
        _ => return None,
    })
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Connect(error) => error.into(),
            ApiError::Refused(problem) => {
                let code = match problem.status {
                    401 | 403 => Code::Refused,
                    409 => Code::Conflict,
                    400 => Code::Usage,
                    _ => Code::Failed,
                };
                let failure =
                    Self::new(code, plain(&problem.to_string())).named(plain(&problem.code));
                match (code, problem.status) {
                    (Code::Refused, _) => failure.hint(TOKEN),
                    (Code::Usage, _) => match filters::hint(problem.field.as_deref()) {
                        Some(hint) => failure.hint(hint),
                        None => failure,
                    },
                    (_, 421) => failure.hint("the engine has another name: use that in --engine"),
                    (_, 404) if problem.code.is_empty() => {
                        failure.hint("is --engine the address of an engine?")
                    }
                    (_, 429 | 500..) => failure.hint("try again in a moment"),
                    _ => failure,
                }
            }
            ApiError::Http(_) => Self::new(Code::Failed, chain(&error))
                .named("engine_protocol")
                .hint("is --engine the address of an engine? run `svc doctor`"),
            other => Self::new(Code::Failed, one_line(&other)).named("engine_protocol"),
        }
    }
}

const TOKEN: &str = "`svc token inspect` shows the token's permissions and expiry";

#[cfg(test)]
mod tests {
    use super::*;

    fn code(kind: RefusalKind) -> Code {
        Failure::from(&Refusal::new(kind, "no")).code
    }

    #[test]
    fn refusals_have_documented_exit_codes() {
        assert_eq!(code(RefusalKind::Unauthorized) as u8, 3);
        assert_eq!(code(RefusalKind::Conflict) as u8, 4);
        assert_eq!(code(RefusalKind::TakenOver) as u8, 4);
        assert_eq!(code(RefusalKind::ClosedByCaller) as u8, 1);
        assert_eq!(code(RefusalKind::NotAvailable) as u8, 5);
        assert_eq!(code(RefusalKind::Invalid) as u8, 1);
        assert_eq!(code(RefusalKind::NotFound) as u8, 1);
    }

    #[test]
    fn an_engine_that_names_a_command_is_not_contradicted() {
        let hint = |text| Failure::from(&Refusal::new(RefusalKind::NotAvailable, text)).hint;
        assert_eq!(hint("no domain: `svc domain add a.example` adds it"), None);
        assert!(hint("`identity` needs a platform").is_some());
    }

    #[test]
    fn only_a_port_in_use_is_called_so() {
        let of = |kind: io::ErrorKind| Failure::of_bind("cannot listen", &kind.into());
        assert_eq!(of(io::ErrorKind::AddrInUse).name(), "port_in_use");
        for kind in [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::AddrNotAvailable,
            io::ErrorKind::NotFound,
        ] {
            let failure = of(kind);
            assert_eq!(failure.name(), "failed", "{failure}");
            assert!(!failure.to_string().contains("port 0"), "{failure}");
        }
    }

    /// Foreign text is printed as one line without control characters.
    #[test]
    fn foreign_text_is_sanitised() {
        let hostile = "no\u{1b}]52;c;cm0=\u{7}\nhint: do that";
        let refusal = Refusal::new(RefusalKind::Invalid, hostile);
        let body = json!({"status": 404, "code": hostile, "detail": hostile, "field": hostile});
        let problem = client::api::Problem::parse(404, body.to_string().as_bytes());
        for failure in [
            Failure::from(&refusal),
            ConnectError::Refused(refusal.clone()).into(),
            ConnectError::Unavailable(hostile.to_owned()).into(),
            ConnectError::Protocol(hostile.to_owned()).into(),
            ApiError::Refused(problem).into(),
            ApiError::Unexpected(hostile.to_owned()).into(),
        ] {
            let is_plain = failure.message() == plain(failure.message());
            assert!(
                is_plain && failure.name() == plain(failure.name()),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn a_failure_is_a_line_and_a_next_step() {
        let failure = Failure::usage("no engine").hint("give --engine");
        assert_eq!(
            failure.to_string(),
            "error[usage]: no engine\nhint: give --engine"
        );
        assert_eq!(
            failure.named("no_engine").to_json().to_string(),
            r#"{"error":{"code":"no_engine","exit_code":2,"hint":"give --engine","message":"no engine"}}"#
        );
    }
}
