//! Who may do what: tokens, tunnels at the edge, agents, diallers.
//!
//! One decision function per question, each fed with values and answering with a value. None
//! opens a socket. All fail closed.

mod bearer;
mod cache;
mod certificate;
mod changes;
pub mod community;
mod decide;
mod jwks;
mod permit;
mod policy;
mod publication;
mod tenancy;
mod tokens;

pub use bearer::Bearer;
pub use certificate::{ClientCertificate, Unmatched};
pub use changes::{Concern, Concerns};
pub use decide::{
    Allowed, Decision, EdgeRequest, Grounds, Outcome, Proof, Rule, TokenForm, Visitor, decide,
    decide_connection, reaches_too, refuse_visitor, still_admits,
};
pub use jwks::{JwksError, JwksSource};
pub use permit::{Denied, fill_and_judge, reaches_list, reaches_stream};
pub use policy::{Guards, TunnelPolicy};
pub use publication::{NotPublishable, may_publish};
pub use tenancy::Tenancy;
pub use tokens::{Digest, Tokens, Unverified};
