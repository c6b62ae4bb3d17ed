//! Authorization of visitors at the edge, agents, diallers and API callers.
//!
//! There is one decision function for each question. Its inputs and its result are values, and it
//! opens no socket. All decisions fail closed.

mod bearer;
mod boundary_check;
mod cache;
mod certificate;
mod changes;
pub mod community;
mod credential_uses;
mod decide;
mod digest;
mod jwks;
mod link_password;
mod pending_update;
mod policy;
mod publication;
mod tenancy;
mod tokens;

pub use bearer::Bearer;
pub use boundary_check::{
    BoundaryDenial, apply_and_check_boundary, check_close_boundary, check_dial_boundary,
    check_list_boundary,
};
pub use certificate::{CertificateError, ClientCertificate};
pub use changes::{ChangeScope, Invalidations};
pub use decide::{
    Admission, AuthContext, Decision, EdgeRequest, Outcome, Proof, Rule, TokenForm, VisitorInfo,
    decide, decide_connection, proof_covers, reauthorize_visit, refuse_visitor,
};
pub(crate) use decide::{PASSWORD_AND_PROOF, hostname_taken_down};
pub use digest::Digest;
pub use jwks::{JwksError, JwksSource};
pub use link_password::{
    BasicAuth, BasicCredentials, CHECKS_AT_ONCE, PasswordCheck, PasswordChecks, PasswordProof,
    PasswordVerdict,
};
pub(crate) use pending_update::{CHECK_PAUSE, wait_for_update};
pub use policy::{RequiredProofs, TunnelPolicy};
pub use publication::{PublicationError, may_publish};
pub use tenancy::Tenancy;
pub use tokens::{TokenError, Tokens};
