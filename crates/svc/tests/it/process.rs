//! The program as a process: errors, help, services and supervisors.

mod completions;
mod doctor;
mod hangup;
mod mistakes;
mod probes;
mod proxies;
mod refusals;
mod service;
mod supervised;
