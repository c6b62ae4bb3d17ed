//! Reasons why there is no new certificate. Each text ends with the next step of the operator, and names
//! no kind of process: engines, platforms and relays order certificates.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use dns::UpdateError;

use crate::chain::ChainError;

/// Reason why there is no new certificate. The current one stays in use.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The state directory cannot be read or written.
    #[error(
        "{} cannot be used: {source}; free space on its disk, or correct its owner and permissions",
        path.display()
    )]
    State {
        /// The file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file of the configuration cannot be used.
    #[error("{} {problem}; correct the file", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Description of the error, as the end of a sentence.
        problem: String,
    },
    /// No response, or none of this protocol.
    #[error(
        "the certificate authority does not respond as expected: {0}; check `directory`, \
         `ca_file` and the network"
    )]
    Connection(String),
    /// The authority refused a request.
    #[error(
        "the certificate authority refuses the request: {detail}; {}",
        next_step(kind)
    )]
    Refused {
        /// Type of the problem, without its common prefix.
        kind: String,
        /// The authority's own text.
        detail: String,
    },
    /// The authority could not validate a name.
    #[error(
        "the certificate authority could not validate {name} by {challenge}: {detail}; check the \
         name's DNS records and that the authority reaches this host"
    )]
    Validation {
        /// The name.
        name: String,
        /// The challenge.
        challenge: &'static str,
        /// The authority's own text.
        detail: String,
    },
    /// No configured challenge is offered.
    #[error(
        "the certificate authority offers no configured challenge for {0}; add one to `challenges`"
    )]
    Challenge(String),
    /// The authority does not have the configured profile.
    #[error(
        "the certificate authority has no profile {wanted}; {}",
        step_after_profile(offered)
    )]
    Profile {
        /// The configured one.
        wanted: String,
        /// Those that it has, separated by commas.
        offered: String,
    },
    /// The authority's order does not match the request.
    #[error("the certificate authority returned an unusable order: {0}; another one is placed")]
    Order(String),
    /// The authority did not finish in time.
    #[error("the certificate authority did not finish the order in time; it is continued later")]
    Slow,
    /// The returned chain is not usable.
    #[error(
        "the certificate authority returned an unusable certificate: {}{}",
        .0,
        step_after_chain(.0)
    )]
    Chain(#[from] ChainError),
    /// The program for DNS records failed.
    #[error("{} {problem}; run it by hand with the same arguments", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// Description of the error, as the end of a sentence.
        problem: String,
    },
    /// The name server did not change a DNS record.
    #[error("a DNS record cannot be changed: {0}")]
    Update(UpdateError),
    /// A library failed; never caused by a peer.
    #[error("the order cannot be prepared: {0}; report this as a defect")]
    Internal(String),
}

impl OrderError {
    pub(crate) fn state(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::State { path, source }
    }

    pub(crate) fn internal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Internal(error.into().to_string())
    }

    /// Consecutive failures after which the next attempt places another order. An order counts
    /// against the authority's limits, and one that never succeeds must not be tried for ever.
    pub(crate) fn attempts_per_order(&self) -> u32 {
        match self {
            Self::Refused { kind, .. } if TRANSIENT.contains(&kind.as_str()) => TRANSIENT_ATTEMPTS,
            // If a clock is wrong, another certificate is not better.
            Self::Chain(ChainError::Expired | ChainError::NotYet) => TRANSIENT_ATTEMPTS,
            Self::Refused { .. }
            | Self::Validation { .. }
            | Self::Challenge(_)
            | Self::Order(_)
            | Self::Chain(_) => 1,
            _ => OTHER_ATTEMPTS,
        }
    }

    /// The kind of the failure, for metrics: one of [`FAILURE_REASONS`].
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::State { .. } => "state",
            Self::File { .. } => "file",
            Self::Connection(_) => "connection",
            Self::Refused { kind, .. } if kind == "rateLimited" => "rate_limited",
            Self::Refused { .. } => "refused",
            Self::Validation { .. } => "validation",
            Self::Challenge(_) => "challenge",
            Self::Profile { .. } => "profile",
            Self::Order(_) => "order",
            Self::Slow => "slow",
            Self::Chain(_) => "certificate",
            Self::Program { .. } => "dns_program",
            Self::Update(_) => "dns_update",
            Self::Internal(_) => "internal",
        }
    }

    /// The text for clients without a credential. It lacks the output of the operator's program,
    /// which may contain secrets, and the name server behind the domain.
    pub(crate) fn public_text(&self) -> String {
        match self {
            Self::Program { .. } => PROGRAM_FAILED.to_owned(),
            Self::Update(_) => UPDATE_FAILED.to_owned(),
            _ => self.to_string(),
        }
    }

    /// Returns true if the authority does not have the account (any more).
    pub(crate) fn is_unknown_account(&self) -> bool {
        matches!(self, Self::Refused { kind, .. } if kind == "accountDoesNotExist")
    }
}

/// The kinds of failures in metrics.
pub(crate) const FAILURE_REASONS: &[&str] = &[
    "state",
    "file",
    "connection",
    "rate_limited",
    "refused",
    "validation",
    "challenge",
    "profile",
    "order",
    "slow",
    "certificate",
    "dns_program",
    "dns_update",
    "internal",
];

impl From<instant_acme::Error> for OrderError {
    fn from(error: instant_acme::Error) -> Self {
        use instant_acme::Error as AcmeError;
        match error {
            AcmeError::Api(problem) => {
                let kind = problem.r#type.as_deref().unwrap_or_default();
                Self::Refused {
                    kind: printable(kind.rsplit(':').next().unwrap_or_default()),
                    detail: printable(&problem.to_string()),
                }
            }
            AcmeError::Timeout(_) => Self::Slow,
            AcmeError::Crypto | AcmeError::KeyRejected => Self::internal(error),
            error => Self::Connection(printable(&error.to_string())),
        }
    }
}

/// The authority's text on one line, without control characters, and bounded.
pub(crate) fn printable(text: &str) -> String {
    let visible = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    visible.take(MAX_TEXT_CHARS).collect()
}

/// The text of an authority with several names has some hundred characters.
const MAX_TEXT_CHARS: usize = 1000;

const PROGRAM_FAILED: &str = "the program for DNS records failed; the log has its output";

const UPDATE_FAILED: &str = "the update of a DNS record failed; the log has the reason";

/// Refusals that do not concern the order (RFC 8555 section 6.7).
const TRANSIENT: [&str; 3] = ["badNonce", "rateLimited", "serverInternal"];

/// With the delays of failures, the four attempts take some minutes at first, and a day later.
const TRANSIENT_ATTEMPTS: u32 = 4;

/// The network, the disk and the records of DNS do not concern the order. It takes hours until an
/// order is replaced, and authorities keep unfinished orders for days.
const OTHER_ATTEMPTS: u32 = 8;

/// The next step after a refusal (RFC 8555 section 6.7).
fn next_step(kind: &str) -> &'static str {
    match kind {
        "rateLimited" => "the next attempt waits as long as the authority asks for",
        "externalAccountRequired" => "set `external_account`",
        "accountDoesNotExist" => "a new account is registered",
        "unauthorized" => {
            "if the account was deactivated, remove `account.json` from the state directory"
        }
        "invalidContact" | "unsupportedContact" => "correct `contact`",
        "caa" => "correct the CAA records of the names",
        "dns" => "correct the DNS records of the names",
        "rejectedIdentifier" => "use a name that the authority accepts",
        "badNonce" => "it is tried again",
        "invalidProfile" => "correct `profile`",
        _ => "it is tried again; see the documentation of the authority",
    }
}

/// The next step without the configured profile.
fn step_after_profile(offered: &str) -> String {
    if offered.is_empty() {
        return "remove `profile`, because the authority lists none".to_owned();
    }
    format!("set `profile` to one that it lists ({offered}), or remove it")
}

/// The next step after an unusable certificate, which the text about a wrong time has already.
fn step_after_chain(error: &ChainError) -> &'static str {
    match error {
        ChainError::Expired | ChainError::NotYet => "",
        ChainError::Format
        | ChainError::Certificate
        | ChainError::Order
        | ChainError::Signature
        | ChainError::Key
        | ChainError::Name(_) => {
            "; another order is placed. If that fails as well, check `directory`, and tell the \
             authority"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_profile_names_those_that_exist() {
        let text = |offered: &str| {
            let error = OrderError::Profile {
                wanted: "shortlived".to_owned(),
                offered: offered.to_owned(),
            };
            error.to_string()
        };
        let some = text("classic, tlsserver");
        assert!(some.contains("no profile shortlived"), "{some}");
        assert!(some.contains("(classic, tlsserver)"), "{some}");
        let none = text("");
        assert!(none.ends_with("the authority lists none"), "{none}");
    }

    #[test]
    fn an_unusable_certificate_has_a_next_step() {
        for (error, step) in [
            (ChainError::Format, "check `directory`"),
            (ChainError::Certificate, "check `directory`"),
            (ChainError::Order, "check `directory`"),
            (ChainError::Signature, "check `directory`"),
            (ChainError::Key, "check `directory`"),
            (
                ChainError::Name("h.example".to_owned()),
                "check `directory`",
            ),
            (ChainError::Expired, "check the clock"),
            (ChainError::NotYet, "check the clock"),
        ] {
            let text = OrderError::Chain(error).to_string();
            assert!(text.contains(step), "{text}");
        }
    }

    #[test]
    fn a_refusal_has_the_text_of_the_authority_and_a_next_step() {
        let problem = serde_json::from_str::<instant_acme::Problem>(
            r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many\norders"}"#,
        );
        let error = OrderError::from(instant_acme::Error::Api(problem.unwrap()));
        let text = error.to_string();
        assert!(text.contains("too many orders"), "{text}");
        assert!(
            text.ends_with("as long as the authority asks for"),
            "{text}"
        );
    }

    #[test]
    fn each_failure_has_a_documented_reason() {
        let refused = |kind: &str| OrderError::Refused {
            kind: kind.to_owned(),
            detail: String::new(),
        };
        for (error, reason) in [
            (refused("rateLimited"), "rate_limited"),
            (refused("unauthorized"), "refused"),
            (OrderError::Connection(String::new()), "connection"),
            (OrderError::Slow, "slow"),
            (OrderError::Chain(ChainError::Key), "certificate"),
            (OrderError::Internal(String::new()), "internal"),
        ] {
            assert_eq!(error.reason(), reason);
            assert!(FAILURE_REASONS.contains(&reason), "{reason}");
        }
    }

    #[test]
    fn an_order_ends_only_with_errors_that_concern_it() {
        let refused = |kind: &str| OrderError::Refused {
            kind: kind.to_owned(),
            detail: String::new(),
        };
        for (error, attempts) in [
            (refused("orderNotReady"), 1),
            (refused("rateLimited"), TRANSIENT_ATTEMPTS),
            (OrderError::Challenge("h.example".to_owned()), 1),
            (OrderError::Chain(ChainError::Key), 1),
            (OrderError::Chain(ChainError::NotYet), TRANSIENT_ATTEMPTS),
            (OrderError::Slow, OTHER_ATTEMPTS),
        ] {
            assert_eq!(error.attempts_per_order(), attempts, "{error}");
        }
    }

    #[test]
    fn the_output_of_a_program_is_not_public() {
        let error = OrderError::Program {
            path: "/program".into(),
            problem: "present failed: token 1234".to_owned(),
        };
        assert!(error.to_string().contains("1234"));
        assert_eq!(error.public_text(), PROGRAM_FAILED);
        assert_eq!(OrderError::Slow.public_text(), OrderError::Slow.to_string());
    }

    #[test]
    fn a_text_of_the_authority_is_bounded() {
        assert_eq!(printable(&"x".repeat(5000)).len(), MAX_TEXT_CHARS);
        assert_eq!(printable("a\u{1b}[0m\r\nb"), "a [0m  b");
    }
}
