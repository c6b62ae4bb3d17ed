//! The control plane.

pub mod mail;
pub mod pages;
pub mod people;
pub mod workspaces;
