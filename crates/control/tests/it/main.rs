//! The control plane through its real router, on a real database.

mod browser;
mod pages;
mod reset;
mod second_factor;
mod sign_in;
mod workspaces;
