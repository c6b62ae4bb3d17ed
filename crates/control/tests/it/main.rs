//! The control plane through its real router, on a real database.

mod browser;
mod sign_in;
