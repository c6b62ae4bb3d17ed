//! `svc up`, `svc platform`, and their files.

mod backup;
mod dashboard;
mod domains;
mod engine;
mod installation;
pub(crate) mod long_sequence;
mod platform;
mod platform_refusals;
mod projects;
mod public;
pub(crate) mod up;
