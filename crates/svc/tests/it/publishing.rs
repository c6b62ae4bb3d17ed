//! Tunnels of one command: publish, dial, watch and explain.

mod address;
mod dial;
mod events;
mod explain;
mod failed_requests;
mod forward;
mod https_services;
mod inspect_tls;
mod link_password;
mod lists;
mod names;
pub(crate) mod panel;
pub(crate) mod run;
mod run_docker;
mod time_to_first_byte;
mod traces;
