//! Certificates from an ACME authority (RFC 8555): a task orders and renews one certificate, keeps
//! it on disk, and answers the challenges of the authority through the listeners of its process.
//! [`AcmeSection`] is its section in the configuration of each server, and [`Certificates`] selects
//! between this certificate and one from files.
//!
//! `schedule` and `chain` decide without IO and without a clock: when to order, when to try again,
//! and if a response of the authority may be used. `manager` is the task; `order` runs one order.

mod acceptor;
mod budget;
mod certificate_states;
mod certificates;
mod chain;
mod challenges;
mod dns_challenge;
mod error;
mod http_answers;
mod http_client;
mod manager;
mod order;
mod resolver;
mod schedule;
mod section;
mod section_context;
mod settings;
mod status;
mod store;
mod tls_config;

pub use self::acceptor::Acceptor;
pub use self::certificate_states::{CertificateSource, CertificateState, CertificateStates};
pub use self::certificates::{Certificates, Orders, RunningResponder};
pub use self::chain::{ChainError, IssuedCertificate};
pub use self::challenges::{Challenges, HTTP_CONTENT_TYPE};
pub use self::dns_challenge::{DnsProgram, DnsProvider, ResponderSettings, challenge_name};
pub use self::error::OrderError;
pub use self::http_answers::serve_http_answers;
pub use self::manager::{
    Certificate, CertificateSet, EXPIRY_METRIC, FAILURE_METRIC, Manager, ORDERS_METRIC,
    domain_state_dir, last_problem,
};
pub use self::schedule::{RenewalWindow, Validity};
pub use self::section::{AcmeSection, inspect};
pub use self::section_context::SectionContext;
pub use self::settings::{ChallengeKind, ExternalAccount, KeyType, Settings, WallClock};
pub use self::status::{StoredCertificate, StoredStatus};
pub use self::tls_config::TlsConfig;
