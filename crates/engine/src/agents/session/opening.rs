//! Opening a tunnel: the checks of an agent's request, in the same order as in all APIs.

use std::net::SocketAddr;
use std::sync::Arc;

use credentials::link_password::MAX_ENTRIES;
use credentials::{LinkPassword, LinkPasswords};
use etcd::Claim;
use types::permission::Permission;
use types::tunnel::{Hostname, PropertyError, Protocol, TunnelProperties};
use wire::{Error, ErrorCode};

use super::Session;
use super::deferred::OpenRefusal;
use crate::access::{self, PublicationError};
use crate::config::Timeouts;
use crate::directory::WebttyServer;
use crate::listen::{BoundPort, PortError, accept_visitors, check_ciphers};
use crate::live::{ClientHandle, HostnameError, OpenTunnelError, Requester};

/// A tunnel that passed all checks, and has its address.
pub(super) struct PreparedTunnel {
    /// The resolved properties.
    pub(super) properties: TunnelProperties,
    policy: access::TunnelPolicy,
    server: Option<Arc<WebttyServer>>,
    port: Option<PublishedPort>,
}

impl Session {
    /// Checks the request for a tunnel, and chooses its address.
    ///
    /// The order of the checks is the same as in all APIs: permission, format, available options,
    /// boundary, state.
    pub(super) fn prepare_tunnel(
        &self,
        request: &wire::message::TunnelProperties,
    ) -> Result<PreparedTunnel, OpenRefusal> {
        let core = Arc::clone(&self.core);
        self.require_permission()?;
        let mut properties = wire::properties::requested(request).map_err(Error::from)?;
        let available = |properties: &TunnelProperties| {
            access::community::refuse_unavailable(
                properties,
                &core.tenancy,
                core.countries.is_some(),
            )
            .map_err(|option| Error::new(ErrorCode::FeatureNotAvailable, option.to_string()))
        };
        available(&properties)?;
        let signed_labels = properties.labels.clone();
        access::apply_and_check_boundary(&self.credential, &self.project, &mut properties)
            .map_err(|refusal| Error::unauthorized(refusal.to_string()))?;
        // Checks the properties that the boundary has added.
        available(&properties)?;
        let mut properties = properties.resolve().map_err(Error::from)?;
        check_ciphers(&properties).map_err(Error::from)?;
        check_time_to_first_byte(&properties, core.config.timeouts).map_err(Error::from)?;
        let passwords = link_passwords(request, &properties).map_err(Error::from)?;
        let server = self.admit(&signed_labels, &mut properties)?;
        access::may_publish(&properties, &self.project).map_err(|refused| match refused {
            PublicationError::Tcp => {
                Error::new(ErrorCode::FeatureNotAvailable, refused.to_string())
            }
            _ => Error::unauthorized(refused.to_string()),
        })?;
        let port = self.publish(&mut properties)?;
        let policy = access::TunnelPolicy::compile(&properties).with_link_passwords(passwords);
        Ok(PreparedTunnel {
            properties,
            policy,
            server,
            port,
        })
    }

    /// Checks that the agent may open tunnels.
    pub(super) fn require_permission(&self) -> Result<(), Error> {
        let permission = Permission::TunnelsTunnelsCreateDelete;
        self.core
            .tenancy
            .require(&self.credential, &self.project, permission)
            .map_err(|missing| Error::unauthorized(missing.to_string()))
    }

    /// Opens a tunnel and returns its effective properties. `claim` is the right to its names in a
    /// cluster.
    pub(super) fn open_tunnel(
        &mut self,
        prepared: PreparedTunnel,
        claim: Option<Claim>,
    ) -> Result<wire::message::TunnelProperties, Error> {
        let core = Arc::clone(&self.core);
        let PreparedTunnel {
            properties,
            policy,
            server,
            port,
        } = prepared;
        let owner = ClientHandle {
            identity: self.identity.clone(),
            project: Arc::clone(&self.project),
            client_id: self.agent.client_id,
            agent: Arc::clone(&self.agent),
        };
        let opened = core
            .live
            .open_tunnel(owner, properties, policy)
            .map_err(refused)?;
        let tunnel = opened.tunnel;
        self.tunnels.insert(tunnel.view.id);
        if let Some(name) = core.namespace.custom_name(&tunnel.view.properties) {
            self.domains.insert(tunnel.view.id, name.clone());
        }
        if let Some(server) = server {
            self.servers.insert(tunnel.view.id, server);
        }
        if let Some(port) = port {
            if port.is_reserved {
                self.reserved.insert(tunnel.view.id, port.bound.port());
            }
            core.tcp_ports
                .serve(port.bound, &tunnel, accept_visitors(core.workers()));
            // If another channel took the tunnel over before this, there was no port to close.
            let id = tunnel.view.id.to_string();
            if core.live.find(&self.project.id, &id).is_none() {
                core.tcp_ports.close(&tunnel.view.id);
            }
        }
        for displaced in opened.displaced {
            core.tcp_ports.close(&displaced.tunnel_id);
            core.forget_upstreams(vec![displaced.tunnel_id]);
            displaced.agent.taken_over(displaced.tunnel_id);
        }
        let properties = wire::properties::opened(&tunnel.view);
        if let Some(claim) = claim {
            self.keep_claim(&tunnel, claim);
        }
        Ok(properties)
    }

    /// Chooses the public address of a tunnel that is published, and writes it into its properties.
    fn publish(&self, properties: &mut TunnelProperties) -> Result<Option<PublishedPort>, Error> {
        if properties.publish != Some(true) {
            return Ok(None);
        }
        if properties.protocol == Some(Protocol::Tcp) {
            let port = self.bind_port(properties)?;
            properties.port = Some(port.bound.port());
            properties.hostname = Some(self.core.namespace.base().clone());
            return Ok(Some(port));
        }
        properties.hostname = Some(self.choose_hostname(properties)?);
        // Visitors connect to the listener's port, and agents derive the address from it.
        properties.port = self.core.tls_addr.get().map(SocketAddr::port);
        Ok(None)
    }

    /// Binds the reserved port that a TCP tunnel requests, or a free one.
    fn bind_port(&self, properties: &TunnelProperties) -> Result<PublishedPort, Error> {
        let core = &self.core;
        let key = (self.identity.clone(), properties.name.clone());
        if core.handover.is_preparing() {
            // The new process has received the ports already.
            let reason = "the engine is being replaced; try again";
            return Err(Error::service_unavailable(reason));
        }
        let bound = match properties.port {
            Some(port) if !self.project.state().has_reserved(port) => {
                let reason = format!("`port` {port} is not reserved for this project");
                return Err(Error::unauthorized(reason));
            }
            Some(port) => core.tcp_ports.bind_reserved(port, &key),
            None => core.tcp_ports.bind(&key, |port| {
                let directory = core.tenancy.directory();
                directory.is_some_and(|known| known.is_reserved(port))
            }),
        };
        let bound = bound.map_err(|error| {
            let code = match error {
                PortError::SwitchedOff => ErrorCode::FeatureNotAvailable,
                PortError::Exhausted => ErrorCode::CapacityExhausted,
                PortError::Taken(_) => ErrorCode::InvalidRequest,
            };
            Error::new(code, error.to_string())
        })?;
        Ok(PublishedPort {
            bound,
            is_reserved: properties.port.is_some(),
        })
    }

    /// The host name of an HTTP or TLS tunnel: the one of the tunnels that share its name, the
    /// requested one, or a free one.
    fn choose_hostname(&self, properties: &TunnelProperties) -> Result<Hostname, Error> {
        let shares = properties.share == Some(true) && properties.hostname.is_none();
        let name = properties.name.as_ref().filter(|_| shares);
        let shared = name.and_then(|name| {
            self.core
                .live
                .shared_hostname(&self.identity, name.as_str())
        });
        let requested = shared.as_ref().or(properties.hostname.as_ref());
        let hostname = self.hostname(requested)?;
        let is_raw = properties.protocol == Some(Protocol::Tls);
        if is_raw && self.has_sessions_of_others(&hostname) {
            let reason = "`hostname`: visitors signed in at another publisher's tunnel with this \
                name, and this tunnel would receive their cookies; the name is free when their \
                sessions have ended";
            return Err(Error::invalid_request(reason));
        }
        Ok(hostname)
    }

    /// Returns true if browsers may have cookies for a name that this agent must not see.
    fn has_sessions_of_others(&self, hostname: &Hostname) -> bool {
        let (publisher, now) = (&self.identity.subject, self.core.unix_seconds());
        let signed_in = &self.project.signed_in;
        signed_in.has_foreign_sessions(hostname.as_str(), publisher, now)
    }

    /// The full name of a requested one, unless its connections lead to another server.
    fn granted(
        &self,
        requested: &Hostname,
        requester: Requester<'_>,
    ) -> Result<Hostname, HostnameError> {
        let hostname = self.core.namespace.resolve(requested, requester)?;
        match self.core.config.tls_routes.get(hostname.as_str()) {
            Some(_) => Err(HostnameError::Routed(hostname)),
            None => Ok(hostname),
        }
    }

    /// The name under which a tunnel is published: the requested one, or a free one.
    fn hostname(&self, requested: Option<&Hostname>) -> Result<Hostname, Error> {
        let namespace = &self.core.namespace;
        let endpoint = self.project.endpoint.as_deref();
        let requester = Requester {
            project: &self.project.id,
            endpoint,
        };
        match requested {
            Some(hostname) => self.granted(hostname, requester).map_err(|error| {
                let code = match error {
                    HostnameError::UnknownDomain(_)
                    | HostnameError::NotOfProject(_)
                    | HostnameError::Reserved(_)
                    | HostnameError::Routed(_) => ErrorCode::FeatureNotAvailable,
                    HostnameError::OtherProject => ErrorCode::Unauthorized,
                    HostnameError::TooLong => ErrorCode::InvalidRequest,
                };
                Error::new(code, error.to_string())
            }),
            None => namespace
                .draw(endpoint, |hostname| self.core.is_reserved_name(hostname))
                .ok_or_else(|| Error::capacity_exhausted("no free hostname was found")),
        }
    }
}

/// Checks the time that a tunnel requests for its service against the limit of this engine.
fn check_time_to_first_byte(
    properties: &TunnelProperties,
    timeouts: Timeouts,
) -> Result<(), PropertyError> {
    let longest = timeouts.max_time_to_first_byte.as_secs();
    match properties.time_to_first_byte_seconds {
        Some(seconds) if u64::from(seconds) > longest => Err(PropertyError::new(
            "time_to_first_byte_seconds",
            format!(
                "{seconds} s is more than the {longest} s that this engine allows \
                 (`timeouts.max_time_to_first_byte_seconds`)"
            ),
        )),
        _ => Ok(()),
    }
}

/// The link passwords of a request. The boundary of a token may also require them.
fn link_passwords(
    request: &wire::message::TunnelProperties,
    properties: &TunnelProperties,
) -> Result<Option<LinkPasswords>, PropertyError> {
    if properties.basic_auth != Some(true) {
        return Ok(None);
    }
    // One entry more than the limit is enough to exceed it.
    let requested = request.basic_auth.iter().take(MAX_ENTRIES + 1);
    let entries = requested.enumerate().map(|(index, entry)| {
        let hash = entry.password_hash.as_ref();
        let hash = hash.map_or("", |hash| hash.value.as_str());
        LinkPassword::parse(&entry.user, hash)
            .map_err(|error| PropertyError::new(format!("basic_auth.{index}"), error.to_string()))
    });
    LinkPasswords::new(entries.collect::<Result<_, _>>()?)
        .map(Some)
        .map_err(|error| PropertyError::new("basic_auth", error.to_string()))
}

/// The port of a published TCP tunnel.
struct PublishedPort {
    bound: BoundPort,
    /// The project has reserved the port.
    is_reserved: bool,
}

fn refused(refused: OpenTunnelError) -> Error {
    match refused {
        OpenTunnelError::Full
        | OpenTunnelError::PlanFull(_)
        | OpenTunnelError::ProjectShareFull(_) => Error::capacity_exhausted(refused.to_string()),
        OpenTunnelError::NotConnected => Error::service_unavailable(refused.to_string()),
        OpenTunnelError::NameTaken
        | OpenTunnelError::HostnameTaken
        | OpenTunnelError::PortTaken
        | OpenTunnelError::GroupMismatch
        | OpenTunnelError::AlreadyHeld => Error::invalid_request(refused.to_string()),
    }
}
