//! Who pays what: the decision about a creation, and the ledger that keeps what was decided.
//!
//! The decision ([`decide`]) is a function of the plan's terms, the workspace's account and the
//! day. Callers confirm what it says; they never choose (CP-4c).

mod account;
mod decision;

pub use self::account::{Account, Period, Standing, Subscription};
pub use self::decision::{Decision, decide};
