//! The host of a published tunnel, as it is written in addresses.

use store::{domains, projects};
use types::domain_name::DomainName;

use super::region_of;
use crate::app::App;
use crate::http_api::problem::HandlerResult;

/// Project and place of a published tunnel. Its name and port are
/// `<slug>-<endpoint>.t.<domain>[:<port>]`, or those of a custom domain, in canonical form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TunnelHost {
    pub(crate) endpoint: String,
    pub(crate) domain: String,
    pub(crate) port: u16,
}

impl TunnelHost {
    /// Parses a host strictly. The result is compared byte by byte and used in an address
    /// unchanged. So it has only letters, digits, dashes and dots, without a user, escapes or
    /// alternative spellings.
    pub(crate) fn parse(authority: &str) -> Option<Self> {
        let (name, port) = name_and_port(authority)?;
        let (label, domain) = name.split_once(".t.")?;
        let is_label = |label: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            (1..=63).contains(&label.len())
                && label.bytes().all(inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let fits =
            name.len() <= MAX_NAME_BYTES && is_label(label) && domain.split('.').all(is_label);
        let (slug, endpoint) = label.rsplit_once('-').filter(|_| fits)?;
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let is_endpoint = endpoint.len() == 8 && endpoint.bytes().all(is_hex);
        (is_endpoint && is_label(slug)).then(|| Self {
            endpoint: endpoint.to_owned(),
            domain: domain.to_owned(),
            port,
        })
    }

    /// The host of a tunnel at a custom domain that engines serve, or at a name below its wildcard.
    /// The project of the domain has it, and no other one.
    pub(crate) async fn at_custom_domain(
        app: &App,
        authority: &str,
    ) -> HandlerResult<Option<Self>> {
        let Some((name, port)) = name_and_port(authority) else {
            return Ok(None);
        };
        let domain = name.parse::<DomainName>();
        if !domain.is_ok_and(|domain| domain.as_str() == name && !domain.is_wildcard()) {
            return Ok(None);
        }
        let mut conn = app.store.read().await?;
        let mut holder = domains::served_by(&mut conn, name).await?;
        if holder.is_none()
            && let Some((_, parent)) = name.split_once('.')
        {
            holder = domains::served_by(&mut conn, &format!("*.{parent}")).await?;
        }
        let Some(holder) = holder else {
            return Ok(None);
        };
        let project = projects::by_id(&mut conn, holder).await?;
        drop(conn);
        Ok(project.and_then(|project| {
            let domain = region_of(app, &project)?.domain.clone();
            Some(Self {
                endpoint: project.endpoint,
                domain,
                port,
            })
        }))
    }

    /// True if a cluster of the platform has tunnels at this domain and port. Anyone can write any
    /// other host into an address.
    pub(crate) fn is_in_cluster(&self, app: &App) -> bool {
        let mut regions = app.plan_service.catalogue().regions().iter();
        regions.any(|region| region.domain == self.domain && region.engine_port == self.port)
    }
}

/// The name and the port of an authority in its shortest form.
fn name_and_port(authority: &str) -> Option<(&str, u16)> {
    match authority.split_once(':') {
        None => Some((authority, HTTPS)),
        Some((name, digits)) => {
            let port: u16 = digits.parse().ok()?;
            let is_canonical = port.to_string() == digits && port != HTTPS && port != 0;
            is_canonical.then_some((name, port))
        }
    }
}

/// Longest DNS name (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 253;
/// The default port of `https`.
const HTTPS: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_parsed_in_canonical_form_only() {
        let host = TunnelHost::parse("my-app-0a1b2c3d.t.engine.example").unwrap();
        let wanted = TunnelHost {
            endpoint: "0a1b2c3d".to_owned(),
            domain: "engine.example".to_owned(),
            port: 443,
        };
        assert_eq!(host, wanted);
        let with_port = TunnelHost::parse("a-0a1b2c3d.t.engine.example:8443").unwrap();
        assert_eq!(with_port.port, 8443);
        for bad in [
            "",
            "engine.example",
            "0a1b2c3d.t.engine.example",
            "-0a1b2c3d.t.engine.example",
            "a-0A1B2C3D.t.engine.example",
            "A-0a1b2c3d.t.engine.example",
            "a-0a1b2c3d.T.engine.example",
            "a-0a1b2c3d.t.engine.example.",
            "a-0a1b2c3d.t.engine.example:443",
            "a-0a1b2c3d.t.engine.example:0443",
            "a-0a1b2c3d.t.engine.example:0",
            "a-0a1b2c3d.t.engine.example:+8443",
            "a-0a1b2c3d.t.engine.example:",
            "a-0a1b2c3d.t.engine.example:1:2",
            "a-0a1b2c3d.t.engine.example:65536",
            "a-0a1b2c3d.t.engine.example@evil.example",
            "evil.example@a-0a1b2c3d.t.engine.example",
            "a-0a1b2c3d.t.engine.example\\@evil.example",
            "a-0a1b2c3d.t.engine.example/x",
            "a-0a1b2c3d.t.engine.example?x",
            "a-0a1b2c3d.t.engine.example#x",
            "a-0a1b2c3d.t.engine%2eexample",
            "a-0a1b2c3d.t.engine\u{3002}example",
            "\u{430}-0a1b2c3d.t.engine.example",
            "a-0a1b2c3d.t.engine.example\r\nx",
            "a-0a1b2c3d.t.engine..example",
            "a-0a1b2c3d..t.engine.example",
            "x.a-0a1b2c3d.t.engine.example",
            "a-0a1b2c3.t.engine.example",
            "[::1]",
        ] {
            assert_eq!(TunnelHost::parse(bad), None, "{bad}");
        }
    }
}
