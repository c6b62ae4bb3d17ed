//! Warnings about valid settings that are probably mistakes.

use daemon::config::{ConfigErrors, Warning};

use super::Config;

pub(super) fn platform(config: &Config, now: i64) -> Result<Vec<Warning>, ConfigErrors> {
    let (mut warnings, mut errors) = (Vec::new(), ConfigErrors::default());
    if let Some(tls) = &config.tls {
        let keys = ["tls.cert_file", "tls.key_file", "tls.acme"];
        errors.keep(tls.inspect(keys, now, &mut warnings));
    }
    errors.finish(Some(warnings))
}
