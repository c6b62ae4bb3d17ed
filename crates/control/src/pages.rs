//! Pages for people: plain forms that work without scripts.

pub mod layout;
pub mod same_origin;
