//! Pages for people: plain forms that work without scripts.

pub mod same_origin;
