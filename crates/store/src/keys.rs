//! Keys and secrets of the platform.

pub mod platform_secrets;
pub mod signing_keys;
