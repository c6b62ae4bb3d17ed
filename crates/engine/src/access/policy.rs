//! What the edge enforces for one tunnel, compiled when the tunnel is opened.

use std::net::IpAddr;

use types::tunnel::{Country, IpRange, Protocol, ProxyHeader, TunnelProperties, WebOrigin};

/// The guards of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelPolicy {
    /// Visitors reach it at the edge; otherwise agents alone dial it.
    pub(super) published: bool,
    pub(super) guards: RequiredProofs,
    trusted_ips: Box<[IpRange]>,
    countries: Box<[Country]>,
    allowed_origins: Box<[WebOrigin]>,
    pass_headers: Box<[ProxyHeader]>,
}

/// What visitors have to prove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequiredProofs {
    /// Every request needs a token (ED-1).
    pub token: bool,
    /// A person's session counts (ED-2).
    pub session: bool,
    /// A client certificate counts (ED-3).
    pub certificate: bool,
    /// Browsers pass a challenge first (ED-6).
    pub challenge: bool,
}

impl RequiredProofs {
    /// Whether visitors prove who they are; a challenge proves that of nobody.
    pub fn take_proofs(self) -> bool {
        self.token || self.session || self.certificate
    }
}

impl TunnelPolicy {
    /// Compiles resolved properties.
    pub fn compile(properties: &TunnelProperties) -> Self {
        let is_terminal = properties.protocol == Some(Protocol::Webtty);
        Self {
            published: properties.publish.unwrap_or(true),
            guards: RequiredProofs {
                // Who opens a managed terminal is known by a token, always (WT-6). A page of
                // another origin could have a browser show a session's cookie.
                token: properties.token_auth == Some(true) || is_terminal,
                session: properties.svc_auth == Some(true) && !is_terminal,
                certificate: properties.mtls_auth == Some(true),
                challenge: properties.challenge_mode == Some(true),
            },
            trusted_ips: properties.trusted_ips.as_slice().into(),
            countries: properties.geo_ip.as_slice().into(),
            allowed_origins: properties.allowed_origins.as_slice().into(),
            pass_headers: properties.pass_headers.as_slice().into(),
        }
    }

    /// The headers of proxies that visitors may send.
    pub fn pass_headers(&self) -> &[ProxyHeader] {
        &self.pass_headers
    }

    /// What visitors have to prove.
    pub fn required_proofs(&self) -> RequiredProofs {
        self.guards
    }

    /// Origins of other pages that may use a person's session.
    pub fn allowed_origins(&self) -> &[WebOrigin] {
        &self.allowed_origins
    }

    /// Whether a decision looks at cookies.
    pub fn reads_cookies(&self) -> bool {
        self.guards.session || self.guards.certificate || self.guards.challenge
    }

    /// Whether a decision asks where an address is.
    pub fn asks_country(&self) -> bool {
        !self.countries.is_empty()
    }

    /// Whether a visitor from this address may come near. Without ranges everybody may.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_ips.is_empty() || self.trusted_ips.iter().any(|range| range.contains(peer))
    }

    /// Whether a visitor from this country may come near. Without a list everybody may; with one,
    /// nobody whose country is not known.
    pub fn admits_country(&self, country: Option<&Country>) -> bool {
        self.countries.is_empty() || country.is_some_and(|country| self.countries.contains(country))
    }
}
