//! Names that a project may add.

use api::control::domains::{CreateDomain, DomainCertificateValidation, DomainKind};
use store::domains::CertificateValidation;
use types::domain_name::{DomainName, DomainNameError};
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::{HandlerResult, bad};

/// A name that a project may add, unless another project holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewName {
    pub(super) name: DomainName,
    pub(super) validation: CertificateValidation,
}

/// Checks the body of a creation.
///
/// # Errors
/// 400 with the field and the reason.
pub(super) fn check(app: &App, body: &CreateDomain) -> HandlerResult<NewName> {
    let name: DomainName = body.hostname.parse().map_err(|error: DomainNameError| {
        Problem::new(400, error.code(), "")
            .with_detail(format!("hostname: {error}"))
            .with_field("hostname")
    })?;
    let name = match body.kind {
        Some(DomainKind::Wildcard) => name.to_wildcard(),
        Some(DomainKind::Hostname) if name.is_wildcard() => {
            return Err(bad("kind", "kind: the name is a wildcard"));
        }
        Some(DomainKind::Hostname) | None => name,
    };
    if is_platform_name(&name, platform_hosts(app)) {
        let detail = "hostname: the name belongs to the platform; its projects have names there \
                      without a custom domain";
        return Err(Problem::new(400, "domain_is_platform", detail)
            .with_field("hostname")
            .into());
    }
    let validation = match (body.certificate_validation, name.is_wildcard()) {
        (Some(DomainCertificateValidation::TlsAlpn01), true) => {
            let detail = "certificateValidation: a wildcard needs dns_01";
            return Err(bad("certificateValidation", detail));
        }
        (Some(DomainCertificateValidation::TlsAlpn01) | None, false) => {
            CertificateValidation::TlsAlpn01
        }
        (Some(DomainCertificateValidation::Dns01), _) | (None, true) => {
            CertificateValidation::Dns01
        }
    };
    Ok(NewName { name, validation })
}

/// Hosts of the platform, its engines and its relay.
fn platform_hosts(app: &App) -> impl Iterator<Item = &str> {
    let config = &app.config;
    let engines = config.engines.iter();
    let engines = engines.map(|engine| engine.cluster_domain.as_str());
    let regions = app.plan_service.catalogue().regions().iter();
    let regions = regions.map(|region| region.domain.as_str());
    let relay = config.turn.domain.as_deref();
    std::iter::once(config.host())
        .chain(engines)
        .chain(regions)
        .chain(relay)
}

/// True for names at or below a host of the platform, and for wildcards that stand for one.
fn is_platform_name<'a>(name: &DomainName, mut hosts: impl Iterator<Item = &'a str>) -> bool {
    hosts.any(|host| {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        name.is_within(host) || (name.is_wildcard() && parent == Some(name.base()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_platform_are_refused() {
        let hosts = ["svc.example.com", "eu.cluster.example", "localhost"];
        for (name, is_refused) in [
            ("svc.example.com", true),
            ("a.svc.example.com", true),
            ("*.svc.example.com", true),
            ("*.example.com", true),
            ("eu.cluster.example", true),
            ("x.t.eu.cluster.example", true),
            ("*.cluster.example", true),
            ("example.com", false),
            ("app.example.com", false),
            ("mysvc.example.com", false),
            ("*.app.example.com", false),
            ("us.cluster.example", false),
        ] {
            let parsed: DomainName = name.parse().unwrap();
            let found = is_platform_name(&parsed, hosts.into_iter());
            assert_eq!(found, is_refused, "{name}");
        }
    }
}
