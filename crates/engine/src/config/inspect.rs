//! Warnings about settings that are allowed but probably a mistake.

use daemon::config::ConfigError;
use daemon::tls::{self, warn_missing_names};

use super::{Auth, ControlPlane, EngineConfig, Warning, endpoint};
use crate::geo::Countries;

pub(super) fn engine(config: &EngineConfig, now: i64) -> Result<Vec<Warning>, ConfigError> {
    let mut warnings = Vec::new();
    certificate(config, now, &mut warnings)?;
    match &config.auth {
        Auth::Keys(keys) => drop(keys.keyring(config.compat_rstream)?),
        Auth::Platform(platform) => control_plane(platform)?,
    }
    warnings.extend(config.metrics.inspect());
    if config
        .trusted_proxies
        .iter()
        .any(|network| network.prefix_len() == 0)
    {
        warnings.push(Warning::new(
            "edge.trusted_proxies",
            "every visitor is trusted as a proxy, so every visitor can choose the address that is \
             checked and logged",
        ));
    }
    if let Some(file) = &config.geoip_file {
        match config.auth {
            Auth::Keys(_) => warnings.push(Warning::new(
                "geoip.file",
                "the file is not used: tunnels with geo_ip are available in managed engines",
            )),
            Auth::Platform(_) => {
                let read = Countries::load(file);
                read.map_err(|error| ConfigError::new("geoip.file", error.to_string()))?;
            }
        }
    }
    Ok(warnings)
}

/// The files must exist. The running engine reports if the platform does not respond.
fn control_plane(platform: &ControlPlane) -> Result<(), ConfigError> {
    endpoint(platform)?
        .check_token()
        .map_err(|problem| ConfigError::new("control_plane.token_file", problem))
}

fn certificate(
    config: &EngineConfig,
    now: i64,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    let key = "certs.static.cert_file";
    let keys = [key, "certs.static.key_file"];
    let pair = tls::inspect(&config.certificate, keys, now, warnings)?;
    let names = pair.certificate().map(|cert| {
        let mut missing = warn_missing_names(&cert, &config.host);
        if matches!(config.auth, Auth::Platform(_)) {
            // Host names of projects: the certificate is checked with an example.
            let project = format!("a.{}", config.host);
            if warn_missing_names(&cert, &project).contains(&project) {
                missing.push(format!("*.{}", config.host));
            }
        }
        missing
    });
    for name in names.unwrap_or_default() {
        let message = format!("the certificate does not include the name {name}");
        warnings.push(Warning::new(key, message));
    }
    Ok(())
}
