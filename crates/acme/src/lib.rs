//! Certificates from an ACME authority (RFC 8555): a task orders and renews one certificate, keeps
//! it on disk, and answers the challenges of the authority through the listeners of its process.
//!
//! `schedule` and `chain` decide without IO and without a clock: when to order, when to try again,
//! and if a response of the authority may be used. `manager` is the task; `order` runs one order.

mod chain;
mod challenges;
mod client;
mod dns_program;
mod error;
mod manager;
mod order;
mod schedule;
mod settings;
mod store;

pub use self::chain::{ChainError, IssuedCertificate};
pub use self::challenges::{Challenges, TLS_ALPN};
pub use self::error::OrderError;
pub use self::manager::{Certificate, EXPIRY_METRIC, Manager, ORDERS_METRIC, last_problem};
pub use self::schedule::{RenewalWindow, Validity};
pub use self::settings::{
    ChallengeKind, DnsProgram, ExternalAccount, KeyType, Settings, WallClock,
};
