//! Warnings about valid settings that are probably mistakes.

use daemon::config::ConfigError;
use daemon::tls::{ReloadingCert, TlsError, provider};

use super::{TurnConfig, Warning};

/// Same value as for engines: a working renewal replaces a certificate days before.
const EXPIRY_NOTICE_SECONDS: i64 = 24 * 60 * 60;

pub(super) fn turn(config: &TurnConfig, now: i64) -> Result<Vec<Warning>, ConfigError> {
    let mut warnings = Vec::new();
    let mut warn = |key, message: String| warnings.push(Warning { key, message });
    config.secret()?;
    certificate(config, now, &mut warn)?;
    match &config.control_plane {
        Some(platform) => platform
            .endpoint()?
            .check_token()
            .map_err(|problem| ConfigError::new("turn.control_plane.token_file", problem))?,
        None => warn(
            "turn.control_plane",
            "without a platform the relay does not learn of suspensions, and refuses credentials \
             that clients derive themselves"
                .to_owned(),
        ),
    }
    if config
        .allowed_peers
        .iter()
        .any(|network| network.prefix_len() == 0)
    {
        warn(
            "turn.allowed_peers",
            "any address may be a peer, including this machine and its network".to_owned(),
        );
    }
    if config.metrics.enabled && config.metrics.listen_addr.is_none() {
        warn(
            "metrics.prometheus.listen_addr",
            "metrics are enabled, but no listener is configured; set an address".to_owned(),
        );
    }
    Ok(warnings)
}

fn certificate(
    config: &TurnConfig,
    now: i64,
    warn: &mut impl FnMut(&'static str, String),
) -> Result<(), ConfigError> {
    let key = "turn.tls.cert_file";
    let Some(files) = &config.certificate else {
        return Ok(());
    };
    let pair = ReloadingCert::load(files.clone(), provider()).map_err(|error| {
        let key = match &error {
            TlsError::Read { path, .. } | TlsError::Content { path, .. } if *path == files.cert => {
                key
            }
            _ => "turn.tls.key_file",
        };
        ConfigError::new(key, error.to_string())
    })?;
    let left = pair.not_after() - now;
    if left <= 0 {
        warn(key, "the certificate has expired".to_owned());
    } else if left < EXPIRY_NOTICE_SECONDS {
        warn(
            key,
            format!("the certificate expires in {} minutes", left / 60),
        );
    }
    Ok(())
}
