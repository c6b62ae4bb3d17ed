//! Arguments that several commands share.

pub(crate) mod filters;
pub(crate) mod hostname;
pub(crate) mod link_password;
pub(crate) mod properties;
pub(crate) mod suggest;
pub(crate) mod time;
