//! Who may do what: tokens, tunnels at the edge, agents, diallers.
//!
//! One decision function per question, each fed with values and answering with a value. None
//! opens a socket. All fail closed.

mod bearer;
mod cache;
pub mod community;
mod decide;
mod permit;
mod policy;
mod tokens;

pub use bearer::Bearer;
pub use decide::{
    Allowed, Decision, EdgeRequest, Outcome, Proof, ProofMethod, Rule, decide, decide_connection,
};
pub use permit::{Denied, may_dial, may_list, may_open_tunnel, require};
pub use policy::TunnelPolicy;
pub use tokens::{Digest, Tokens, Unverified};
