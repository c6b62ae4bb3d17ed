//! Explanation of a connection that the engine closes because of the name in its address.

use client::{
    Agent, Config, ConnectError,
    api::{Api, ApiError},
    error::Step,
};

use crate::{failure::Failure, platform::is_endpoint};

/// The failure if the engine does not serve the name in its address, with the text of other
/// commands. An engine closes the connection of an agent to another name during the handshake, as a
/// proxy without an engine does. Its API tells the two apart. The request contains no token, because
/// the name may belong to a tunnel.
///
/// Cancel safe: dropping the future closes the connection.
pub(super) async fn mistake(agent: &Agent, config: &Config) -> Option<Failure> {
    let failed = agent.last_failure()?;
    let is_handshake = matches!(
        failed,
        ConnectError::Network {
            step: Step::Handshake,
            ..
        }
    );
    if !is_handshake {
        return None;
    }
    let error = Api::new(config).ok()?.check_name().await.err()?;
    let is_lasting = match &error {
        ApiError::Connect(error) => error.is_lasting(),
        // A project that was created a moment ago may not be known to its engine yet.
        ApiError::Refused(problem) => problem.status != 421 || !is_of_project(config),
        _ => false,
    };
    is_lasting.then(|| error.into())
}

/// True if the engine's address is the one of a project.
fn is_of_project(config: &Config) -> bool {
    let host = config.engine.host();
    host.split_once('.')
        .is_some_and(|(label, _)| is_endpoint(label))
}
