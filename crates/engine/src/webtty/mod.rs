//! Managed terminals: sessions on registered servers, who takes part in them, and what is kept of
//! them.

pub mod recordings;
