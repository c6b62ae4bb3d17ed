//! Arguments that several commands share.

pub(crate) mod filters;
pub(crate) mod properties;
pub(crate) mod suggest;
pub(crate) mod time;
