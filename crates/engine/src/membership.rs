//! The engine's membership in a cluster: the names of its tunnels belong to it at all engines.
//!
//! A tunnel of an engine with `cluster` opens when the engine has claimed its names (the crate
//! `etcd`). The claims end with the tunnel. The engine then writes the settings of the tunnel for the
//! other engines ([`entry`]).

pub(crate) mod entry;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::config::ConfigError;
use etcd::{ClaimError, Cluster, Settings};
use ownership::{Engine, Name, Owner, Refusal};
use types::tunnel::TunnelProperties;
use wire::Error;

use crate::config::ClusterConfig;
use crate::live::{Identity, routed_hostname};

/// Starts to join the cluster of the configuration. `listener` is the bound address of the listener
/// for other engines.
///
/// # Errors
/// A file of the configuration cannot be used. The store may be unreachable.
pub(crate) fn start(
    config: &ClusterConfig,
    listener: SocketAddr,
) -> Result<Arc<Cluster>, ConfigError> {
    let store = &config.store;
    store.check_certificates()?;
    let settings = Settings {
        endpoints: store.endpoints.clone(),
        tls: store.tls.clone(),
        login: store.login()?,
        prefix: format!("/svc/{}/", config.name),
        engine: Engine {
            name: config.engine.as_str().into(),
            address: advertised(&config.advertise, listener).into(),
            zone: config.zone.as_deref().unwrap_or_default().into(),
        },
        hold: HOLD,
    };
    Ok(Arc::new(Cluster::start(&settings)))
}

/// The address for the other engines. Port 0 is the port of the listener, as in the address of the
/// listener itself.
fn advertised(configured: &str, listener: SocketAddr) -> String {
    match configured.rsplit_once(':') {
        Some((host, "0")) => format!("{host}:{}", listener.port()),
        _ => configured.to_owned(),
    }
}

/// The names of a tunnel that have one owner in the cluster. The properties are resolved.
pub(crate) fn names_of(project: &str, properties: &TunnelProperties) -> Vec<Name> {
    let host = routed_hostname(properties).map(|host| Name::of_host(host.as_str()));
    let name = properties.name.as_ref();
    let name = name.map(|name| Name::of_tunnel(project, name.as_str()));
    host.into_iter().chain(name).collect()
}

/// The owner of the names of an identity.
pub(crate) fn owner_of(identity: &Identity) -> Owner {
    let kind = match &identity.subject {
        credentials::Identity::User(_) => "user",
        credentials::Identity::Client(_) => "client",
    };
    // Ids of projects contain no `/`.
    let (project, id) = (&identity.project, identity.subject.id());
    Owner::new(format!("{project}/{kind}/{id}"))
}

/// The answer to an agent whose tunnel is refused.
pub(crate) fn refusal(error: &ClaimError) -> Error {
    match error {
        ClaimError::Taken(name, refusal) => {
            let what = if name.is_host() {
                "hostname"
            } else {
                "tunnel name"
            };
            let reason = match refusal {
                Refusal::Online => format!("the {what} is taken"),
                Refusal::Held => format!(
                    "an agent of another owner left within the last ten minutes, so the {what} is \
                     taken"
                ),
            };
            Error::invalid_request(reason)
        }
        // Agents try again: a store that refuses the engine is repaired by its operator, who finds
        // its addresses and texts in the log.
        ClaimError::Store(error) => Error::service_unavailable(error.summary()),
        ClaimError::Contended | ClaimError::Stopping => {
            Error::service_unavailable(error.to_string())
        }
    }
}

/// The time for which a name is held against other owners after its owner was last online: as long
/// as visitors get 503 for it.
const HOLD: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use types::tunnel::Protocol;

    use super::*;

    #[test]
    fn a_tunnel_has_a_host_name_and_a_name_in_its_project() {
        let mut properties = TunnelProperties {
            name: Some("web".parse().unwrap()),
            hostname: Some("web.t.engine.example".parse().unwrap()),
            publish: Some(true),
            protocol: Some(Protocol::Http),
            ..TunnelProperties::default()
        };
        let host = Name::of_host("web.t.engine.example");
        let name = Name::of_tunnel("p1", "web");
        assert_eq!(names_of("p1", &properties), [host, name.clone()]);
        // Tunnels of all engines show the host name of their engine.
        properties.protocol = Some(Protocol::Tcp);
        assert_eq!(names_of("p1", &properties), std::slice::from_ref(&name));
        properties.publish = Some(false);
        assert_eq!(names_of("p1", &properties), [name]);
        properties.name = None;
        assert!(names_of("p1", &properties).is_empty());
    }

    #[test]
    fn port_0_is_advertised_as_the_port_of_the_listener() {
        let listener = "127.0.0.1:7443".parse().unwrap();
        for (configured, expected) in [
            ("10.0.0.1:0", "10.0.0.1:7443"),
            ("[::1]:0", "[::1]:7443"),
            ("engine-1.internal:0", "engine-1.internal:7443"),
            ("10.0.0.1:8443", "10.0.0.1:8443"),
        ] {
            assert_eq!(advertised(configured, listener), expected);
        }
    }

    #[test]
    fn agents_try_again_unless_the_name_is_taken() {
        let taken = |refusal| ClaimError::Taken(Name::of_host("a"), refusal);
        for refusal in [Refusal::Online, Refusal::Held] {
            let error = super::refusal(&taken(refusal));
            assert_eq!(error.kind(), wire::ErrorCode::InvalidRequest);
            // Clients recognise conflicts by the end of the message.
            assert!(error.text().ends_with("the hostname is taken"));
        }
        let lost = ClaimError::Store(etcd::StoreError::QuorumLost);
        for error in [lost, ClaimError::Contended, ClaimError::Stopping] {
            let refused = super::refusal(&error);
            assert_eq!(refused.kind(), wire::ErrorCode::ServiceUnavailable);
            assert_eq!(refused.text(), error.to_string());
        }
    }

    #[test]
    fn a_user_and_an_application_with_one_id_are_two_owners() {
        let user = credentials::Identity::User("a".to_owned());
        let client = credentials::Identity::Client("a".to_owned());
        let owners = [("p1", &user), ("p1", &client), ("p2", &user)];
        let owners = owners.map(|(project, subject)| owner_of(&Identity::new(project, subject)));
        assert_ne!(owners[0], owners[1]);
        assert_ne!(owners[0], owners[2]);
    }
}
