//! Warnings about valid settings that are probably mistakes.

use daemon::config::ConfigError;
use daemon::tls;

use super::{TurnConfig, Warning, endpoint};

pub(super) fn turn(config: &TurnConfig, now: i64) -> Result<Vec<Warning>, ConfigError> {
    let mut warnings = Vec::new();
    config.secret()?;
    if let Some(files) = &config.certificate {
        let keys = ["turn.tls.cert_file", "turn.tls.key_file"];
        tls::inspect(files, keys, now, &mut warnings)?;
    }
    match &config.control_plane {
        Some(platform) => endpoint(platform)?
            .check_token()
            .map_err(|problem| ConfigError::new("turn.control_plane.token_file", problem))?,
        None => warnings.push(Warning::new(
            "turn.control_plane",
            "without a platform the relay does not learn of suspensions, and refuses credentials \
             that clients derive themselves",
        )),
    }
    if config
        .allowed_peers
        .iter()
        .any(|network| network.prefix_len() == 0)
    {
        warnings.push(Warning::new(
            "turn.allowed_peers",
            "any address may be a peer, including this machine and its network",
        ));
    }
    warnings.extend(config.metrics.inspect());
    Ok(warnings)
}
