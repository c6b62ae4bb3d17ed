//! The program as its users meet it.

#[cfg(test)]
mod curl;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod mcp_clients;
#[cfg(test)]
mod mcp_conformance;
#[cfg(test)]
mod network;
#[cfg(test)]
mod nginx;
#[cfg(test)]
mod oauth_clients;
#[cfg(test)]
mod python_sdk;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod tls;
