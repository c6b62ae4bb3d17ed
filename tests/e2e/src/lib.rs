//! The real program beside real third-party clients.
