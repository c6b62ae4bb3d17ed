//! Warnings about settings that are allowed but probably a mistake.

use daemon::config::{ConfigError, ConfigErrors};
use daemon::tls::{self, CertFiles, ReloadingCert, warn_missing_names};

use super::check::NamedFiles;
use super::{Auth, ControlPlane, EngineConfig, StoreConfig, Warning, domains, endpoint, keys};
use crate::cluster::{engine_name, has_name};
use crate::geo::Countries;

/// Reads the files that a configuration names, and adds all errors.
pub(super) fn files(
    files: &NamedFiles<'_>,
    now: i64,
    warnings: &mut Vec<Warning>,
    errors: &mut ConfigErrors,
) {
    let is_managed = matches!(files.auth, Some(Auth::Platform(_)));
    let own = files.certificate.and_then(|pair| {
        let others = files.acme.map(|acme| acme.names.as_slice());
        let names = (files.host, others.unwrap_or_default());
        errors.keep(certificate(pair, names, is_managed, now, warnings))
    });
    if let Some(acme) = files.acme {
        errors.keep(acme::inspect(acme, "certs.acme", warnings));
        orders(acme, files.certificate.is_some(), warnings);
    }
    domains::inspect(
        files.domains,
        files.acme,
        own.as_ref(),
        now,
        warnings,
        errors,
    );
    match files.auth {
        Some(Auth::Keys(keys)) => keys::inspect(keys, errors),
        Some(Auth::Platform(platform)) => control_plane(platform, errors),
        None => {}
    }
    if let Some(file) = files.geoip_file.filter(|_| is_managed) {
        let read = Countries::load(file);
        errors.keep(read.map_err(|error| ConfigError::new("geoip.file", error.to_string())));
    }
}

/// Adds warnings about valid settings.
pub(super) fn settings(config: &EngineConfig, warnings: &mut Vec<Warning>) {
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
    let store = config.cluster.as_ref().map(|cluster| &cluster.store);
    if store.is_some_and(StoreConfig::is_exposed) {
        warnings.push(Warning::new(
            "cluster.etcd.endpoints",
            "the connections are not encrypted: who can change them can assign names to other \
             owners; use https",
        ));
    }
    if config.geoip_file.is_some() && config.platform().is_none() {
        warnings.push(Warning::new(
            "geoip.file",
            "the file is not used: tunnels with geo_ip are available in managed engines",
        ));
    }
}

/// Reads the files of a cluster, and adds all errors.
pub(super) fn cluster(
    config: &EngineConfig,
    now: i64,
    warnings: &mut Vec<Warning>,
    errors: &mut ConfigErrors,
) {
    let Some(cluster) = &config.cluster else {
        return;
    };
    errors.keep(cluster.store.login());
    errors.keep(cluster.store.check_certificates());
    errors.keep(cluster.check_authority());
    let files = CertFiles {
        cert: cluster.cert_file.clone(),
        key: cluster.key_file.clone(),
    };
    let keys = ["cluster.cert_file", "cluster.key_file"];
    let pair = errors.keep(tls::inspect(&files, keys, now, warnings));
    let name = engine_name(&cluster.name, &cluster.engine);
    if let Some(certificate) = pair.and_then(|pair| pair.certificate())
        && !has_name(&certificate, &name)
    {
        let message = format!(
            "{}: the certificate has no name {name}: `svc cluster add {}` creates one",
            cluster.cert_file.display(),
            cluster.engine
        );
        errors.push(ConfigError::new("cluster.cert_file", message));
    }
}

/// The files must exist. The running engine reports if the platform does not respond.
fn control_plane(platform: &ControlPlane, errors: &mut ConfigErrors) {
    let key = "control_plane.token_file";
    let token = link::check_token(&platform.token_file);
    errors.keep(endpoint(platform));
    errors.keep(token.map_err(|problem| ConfigError::new(key, problem)));
}

/// Adds the last failure of an order, and the names that no certificate will have.
fn orders(acme: &acme::Settings, has_files: bool, warnings: &mut Vec<Warning>) {
    if acme.dns.is_none() && !has_files {
        let message = "published names will have no certificate: add dns-01, which wildcards \
                       require, or a certificate from files in certs.static";
        warnings.push(Warning::new("certs.acme.challenges", message));
    }
}

fn certificate(
    files: &CertFiles,
    (host, others): (Option<&str>, &[String]),
    is_managed: bool,
    now: i64,
    warnings: &mut Vec<Warning>,
) -> Result<ReloadingCert, ConfigError> {
    let key = "certs.static.cert_file";
    let keys = [key, "certs.static.key_file"];
    let pair = tls::inspect(files, keys, now, warnings)?;
    let (Some(host), Some(cert)) = (host, pair.certificate()) else {
        return Ok(pair);
    };
    let mut missing = warn_missing_names(&cert, host);
    if is_managed {
        // Host names of projects: the certificate is checked with an example.
        let project = format!("a.{host}");
        if warn_missing_names(&cert, &project).contains(&project) {
            missing.push(format!("*.{host}"));
        }
    }
    // Another certificate has the name.
    missing.retain(|name| !others.contains(name));
    for name in missing {
        let message = format!("the certificate does not include the name {name}");
        warnings.push(Warning::new(key, message));
    }
    Ok(pair)
}
