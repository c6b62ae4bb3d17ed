//! The access rules of one tunnel, compiled when the tunnel is opened.

use std::net::IpAddr;
use std::sync::Arc;

use credentials::LinkPasswords;
use types::tunnel::{
    Country, IdentityClaim, IdentityField, IpRange, Protocol, ProxyHeader, TunnelProperties,
    WebOrigin,
};

/// The access rules of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelPolicy {
    /// True if visitors reach the tunnel at the edge. A private tunnel can only be dialled.
    pub(super) published: bool,
    pub(super) required_proofs: RequiredProofs,
    trusted_ips: Box<[IpRange]>,
    countries: Box<[Country]>,
    allowed_origins: Box<[WebOrigin]>,
    pass_headers: Box<[ProxyHeader]>,
    identity: Box<[IdentityField]>,
    link_passwords: Option<Arc<LinkPasswords>>,
}

/// The proofs that visitors need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequiredProofs {
    /// Every request needs a token (ED-1).
    pub token: bool,
    /// A user's session is accepted (ED-2).
    pub session: bool,
    /// A client certificate is accepted (ED-3).
    pub certificate: bool,
    /// Browsers have to pass a challenge first (ED-6).
    pub challenge: bool,
    /// A link password is accepted.
    pub password: bool,
}

impl RequiredProofs {
    /// Returns true if visitors have to prove their identity; a challenge does not prove one, and
    /// neither does a password that many visitors share.
    pub fn requires_identity(self) -> bool {
        self.token || self.session || self.certificate
    }
}

impl TunnelPolicy {
    /// Compiles resolved properties.
    pub fn compile(properties: &TunnelProperties) -> Self {
        let is_terminal = properties.protocol == Some(Protocol::Webtty);
        Self {
            published: properties.publish.unwrap_or(true),
            required_proofs: RequiredProofs {
                // The user who opens a managed terminal is always identified by a token (WT-6). A
                // page of another origin could make a browser send a session's cookie.
                token: properties.token_auth == Some(true) || is_terminal,
                session: properties.svc_auth == Some(true) && !is_terminal,
                certificate: properties.mtls_auth == Some(true),
                challenge: properties.challenge_mode == Some(true),
                password: properties.basic_auth == Some(true),
            },
            trusted_ips: properties.trusted_ips.as_slice().into(),
            countries: properties.geo_ip.as_slice().into(),
            allowed_origins: properties.allowed_origins.as_slice().into(),
            pass_headers: properties.pass_headers.as_slice().into(),
            identity: properties.identity.as_slice().into(),
            link_passwords: None,
        }
    }

    /// Sets the link passwords, which are not part of the properties.
    #[must_use]
    pub fn with_link_passwords(mut self, passwords: Option<LinkPasswords>) -> Self {
        self.link_passwords = passwords.map(Arc::new);
        self
    }

    /// The link passwords.
    pub fn link_passwords(&self) -> Option<&Arc<LinkPasswords>> {
        self.link_passwords.as_ref()
    }

    /// The proxy headers that visitors may send.
    pub fn pass_headers(&self) -> &[ProxyHeader] {
        &self.pass_headers
    }

    /// The headers with the identity of signed-in visitors.
    pub fn identity(&self) -> &[IdentityField] {
        &self.identity
    }

    /// The facts that a user must agree to share with the service, each once and in order.
    pub fn shared_claims(&self) -> impl Iterator<Item = IdentityClaim> {
        let all = IdentityClaim::ALL.iter().copied();
        all.filter(move |claim| {
            let mut requested = self.identity.iter();
            claim.needs_agreement() && requested.any(|field| field.claim() == *claim)
        })
    }

    /// The proofs that visitors need.
    pub fn required_proofs(&self) -> RequiredProofs {
        self.required_proofs
    }

    /// Origins of other pages that may use a user's session or a link password.
    pub fn allowed_origins(&self) -> &[WebOrigin] {
        &self.allowed_origins
    }

    /// Returns true if a decision depends on cookies.
    pub fn reads_cookies(&self) -> bool {
        self.required_proofs.session
            || self.required_proofs.certificate
            || self.required_proofs.challenge
    }

    /// Returns true if a decision depends on the country of an address.
    pub fn asks_country(&self) -> bool {
        !self.countries.is_empty()
    }

    /// Returns true if visitors from this address are allowed. Without ranges all addresses are.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_ips.is_empty() || self.trusted_ips.iter().any(|range| range.contains(peer))
    }

    /// Returns true if visitors from this country are allowed. Without a list all countries are;
    /// with one, visitors of unknown countries are refused.
    pub fn admits_country(&self, country: Option<&Country>) -> bool {
        self.countries.is_empty() || country.is_some_and(|country| self.countries.contains(country))
    }
}
