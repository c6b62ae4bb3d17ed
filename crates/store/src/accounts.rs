//! Accounts of users and what they sign in with.

pub mod attempts;
pub mod links;
pub mod passkeys;
pub mod pending_sign_ins;
pub mod sessions;
pub mod used_challenges;
pub mod users;
