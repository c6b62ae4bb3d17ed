//! Warnings about valid settings that are probably mistakes.

use daemon::config::{ConfigErrors, Warning};
use daemon::tls;

use super::Config;

pub(super) fn platform(config: &Config, now: i64) -> Result<Vec<Warning>, ConfigErrors> {
    let (mut warnings, mut errors) = (Vec::new(), ConfigErrors::default());
    if let Some(config) = &config.tls {
        if let Some(files) = &config.files {
            let keys = ["tls.cert_file", "tls.key_file"];
            errors.keep(tls::inspect(files, keys, now, &mut warnings));
        }
        if let Some(settings) = &config.acme {
            acme::inspect(settings, "tls.acme", &mut warnings);
        }
    }
    errors.finish(Some(warnings))
}
