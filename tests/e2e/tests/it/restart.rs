//! Either side ends and comes back.
