//! Agents, dialling clients, and the protocol between them and the engine.

mod bridged;
mod closed_tunnels;
mod control_channel;
mod dial;
mod lanes;
pub(crate) mod raw_messages;
mod sdk_agents;
mod takeover;
