//! End-to-end tests of the program.

#[cfg(test)]
mod certificates;
#[cfg(test)]
mod cors;
#[cfg(test)]
mod curl;
#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod exhausted;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod generated_clients;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod inspector;
#[cfg(test)]
mod judges;
#[cfg(test)]
mod managed;
#[cfg(test)]
mod mcp_clients;
#[cfg(test)]
mod mcp_conformance;
#[cfg(test)]
mod mcp_live;
#[cfg(test)]
mod network;
#[cfg(test)]
mod nginx;
#[cfg(test)]
mod oauth_clients;
// The names of the proxies come from a library for the dynamic linker of Linux.
#[cfg(test)]
#[cfg(target_os = "linux")]
mod proxies;
#[cfg(test)]
mod python_sdk;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod scripts;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod terminals;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod turn;
