//! Users, credentials and contexts.

mod applications;
mod confirmation;
mod context;
mod credentials;
mod ids;
#[cfg(all(feature = "keyring", target_os = "linux"))]
mod keyring;
mod login;
mod token;
