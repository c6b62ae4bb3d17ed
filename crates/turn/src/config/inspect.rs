//! Warnings about valid settings that are probably mistakes.

use std::net::SocketAddr;

use acme::ChallengeKind;
use daemon::config::{ConfigError, ConfigErrors};

use super::{TurnConfig, Warning, endpoint};

pub(super) fn turn(config: &TurnConfig, now: i64) -> Result<Vec<Warning>, ConfigErrors> {
    let (mut warnings, mut errors) = (Vec::new(), ConfigErrors::default());
    errors.keep(config.secret());
    if let Some(tls) = &config.tls {
        let keys = ["turn.tls.cert_file", "turn.tls.key_file", "turn.tls.acme"];
        errors.keep(tls.inspect(keys, now, &mut warnings));
        if let Some(settings) = &tls.acme {
            validations(settings, &config.tls_listen, &mut warnings);
        }
    }
    match &config.control_plane {
        Some(platform) => {
            let key = "turn.control_plane.token_file";
            let token = link::check_token(&platform.token_file);
            errors.keep(endpoint(platform));
            errors.keep(token.map_err(|problem| ConfigError::new(key, problem)));
        }
        None => warnings.push(Warning::new(
            "turn.control_plane",
            "without a platform the relay does not receive suspensions, and refuses credentials \
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
    errors.finish(Some(warnings))
}

/// Clients of a relay use any port, but an authority uses port 443.
fn validations(settings: &acme::Settings, listen: &[SocketAddr], warnings: &mut Vec<Warning>) {
    let is_by_tls = settings.challenges.contains(&ChallengeKind::TlsAlpn01);
    if is_by_tls && listen.iter().all(|address| address.port() != 443) {
        let message = "tls-alpn-01 uses port 443, which turn.tls_listen_addr does not have: forward \
                       that port here, or use http-01 or dns-01";
        warnings.push(Warning::new("turn.tls.acme.challenges", message));
    }
}
