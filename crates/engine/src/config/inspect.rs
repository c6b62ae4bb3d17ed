//! Warnings about settings that are allowed but probably a mistake.

use daemon::config::ConfigError;
use daemon::tls::{ReloadingCert, TlsError, provider, warn_missing_names};

use super::{Auth, ControlPlane, EngineConfig, Warning};
use crate::geo::Countries;

/// A certificate that expires within this time causes a warning. A working renewal replaces a
/// 90-day certificate a month before it expires, and a 6-day one two days before.
const EXPIRY_NOTICE_SECONDS: i64 = 24 * 60 * 60;

pub(super) fn engine(config: &EngineConfig, now: i64) -> Result<Vec<Warning>, ConfigError> {
    let mut warnings = Vec::new();
    let mut warn = |key, message: String| warnings.push(Warning { key, message });
    certificate(config, now, &mut warn)?;
    match &config.auth {
        Auth::Keys(keys) => drop(keys.keyring(config.compat_rstream)?),
        Auth::Platform(platform) => control_plane(platform)?,
    }
    if config.metrics.enabled && config.metrics.listen_addr.is_none() {
        warn(
            "metrics.prometheus.listen_addr",
            "metrics are enabled, but no listener is configured; set an address".to_owned(),
        );
    }
    if config
        .trusted_proxies
        .iter()
        .any(|network| network.prefix_len() == 0)
    {
        warn(
            "edge.trusted_proxies",
            "every visitor is trusted as a proxy, so every visitor can choose the address that is \
             checked and logged"
                .to_owned(),
        );
    }
    if let Some(file) = &config.geoip_file {
        match config.auth {
            Auth::Keys(_) => warn(
                "geoip.file",
                "the file is not used: tunnels with geo_ip are available in managed engines"
                    .to_owned(),
            ),
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
    let endpoint = platform.endpoint()?;
    endpoint
        .check_token()
        .map_err(|problem| ConfigError::new("control_plane.token_file", problem))
}

fn certificate(
    config: &EngineConfig,
    now: i64,
    warn: &mut impl FnMut(&'static str, String),
) -> Result<(), ConfigError> {
    let key = "certs.static.cert_file";
    let pair = ReloadingCert::load(config.certificate.clone(), provider()).map_err(|error| {
        let key = match &error {
            TlsError::Read { path, .. } | TlsError::Content { path, .. }
                if *path == config.certificate.cert =>
            {
                key
            }
            _ => "certs.static.key_file",
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
        warn(
            key,
            format!("the certificate does not include the name {name}"),
        );
    }
    Ok(())
}
