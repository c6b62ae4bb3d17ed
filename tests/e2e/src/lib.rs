//! The real program beside real third-party clients.
//!
//! [`Svc`] is the program itself, started on a free port with a certificate made for the test;
//! [`python`] is an interpreter that has the published SDK. Nothing here uses a crate of ours: what
//! these tests know of the program is what its users know.

mod certificate;
mod script;
mod svc;
mod token;

pub use script::{python, script};
pub use svc::{Svc, free_ports};
