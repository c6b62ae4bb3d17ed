//! Workspaces, projects, and the objects in them.

mod addresses;
mod addresses_chromium;
mod audit;
mod checkout;
mod domains;
mod domains_chromium;
pub(crate) mod projects;
mod records;
mod settings;
mod tenancy;
mod terminals;
mod terminals_chromium;
pub(crate) mod webhooks;
mod webtty_servers;
pub(crate) mod workspaces;
