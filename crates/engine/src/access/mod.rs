//! Who may do what: tokens, tunnels at the edge, agents, diallers.
//!
//! One decision function per question, each fed with values and answering with a value. None
//! opens a socket. All fail closed.

mod bearer;
mod cache;
pub mod community;
mod decide;
mod jwks;
mod permit;
mod policy;
mod tokens;

pub use bearer::Bearer;
pub use decide::{
    Allowed, Decision, EdgeRequest, Outcome, Proof, ProofMethod, Rule, decide, decide_connection,
};
pub use jwks::{JwksError, JwksSource};
pub use permit::{Denied, fill_and_judge, may_create_tunnels, may_dial, reaches_list, require};
pub use policy::TunnelPolicy;
pub use tokens::{Digest, Tokens, Unverified};

/// Id of the one project that a community engine serves.
pub const PROJECT: &str = "default";
