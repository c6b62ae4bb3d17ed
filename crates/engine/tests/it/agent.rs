//! Agents, dialling clients, and the protocol between them and the engine.

mod bridged;
mod closed;
mod control_channel;
mod dial;
mod lanes;
mod sdk_agents;
mod takeover;
pub(crate) mod wired;
