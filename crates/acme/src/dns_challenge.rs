//! Challenges whose records are in the DNS (`dns-01`): their publication, and its configuration.

mod program;
mod provider;
pub(crate) mod section;

pub use self::program::DnsProgram;
pub(crate) use self::program::DnsRecord;
pub use self::provider::{DnsProvider, ResponderSettings, challenge_name};
