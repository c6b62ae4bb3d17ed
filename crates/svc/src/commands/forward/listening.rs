//! Finds out if anything listens on the target. The answer is only for a warning.

use std::{io, net::SocketAddr};

use client::Target;
use tokio::{net::TcpSocket, time::timeout};

use super::PROBE;

/// A warning if nothing listens on the target now.
pub(super) async fn warning(target: &Target) -> Option<String> {
    let probe = async {
        match target {
            Target::Tcp(address) | Target::Tls(address) => match address.resolve().await {
                Ok(addresses) => nothing_listens(&addresses).await,
                // An unknown name has no listener.
                Err(_unknown) => true,
            },
            Target::Unix(path) => !path.exists(),
            // A target of another kind is not examined.
            _ => false,
        }
    };
    // A machine that does not answer is not known to have no listener.
    let is_absent = timeout(PROBE, probe).await.unwrap_or(false);
    is_absent.then(|| {
        format!(
            "warning: nothing listens on {target} yet; visitors get an error until the service \
             starts"
        )
    })
}

async fn nothing_listens(addresses: &[SocketAddr]) -> bool {
    for address in addresses {
        if !is_free(*address).await {
            return false;
        }
    }
    true
}

/// True if no socket listens on the address. Listeners of this machine are found without a
/// connection, because some services accept only one, or log each.
async fn is_free(address: SocketAddr) -> bool {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    // Without the protocol, such as IPv6, nothing listens.
    let Ok(socket) = socket else { return true };
    if cfg!(target_os = "linux") && address.ip().is_loopback() {
        // With this option the address can be bound unless a socket listens, and a service with the
        // same option can bind it meanwhile.
        let bound = socket
            .set_reuseaddr(true)
            .and_then(|()| socket.bind(address));
        if let Some(is_free) = is_free_after_bind(&bound) {
            return is_free;
        }
    }
    let connected = socket.connect(address).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The result of an attempt to bind. `None` if it does not depend on listeners.
fn is_free_after_bind(bound: &io::Result<()>) -> Option<bool> {
    match bound.as_ref().map_err(io::Error::kind) {
        // Or there is no such address here, as without IPv6.
        Ok(()) | Err(io::ErrorKind::AddrNotAvailable) => Some(true),
        // The port may be reserved for privileged users.
        Err(io::ErrorKind::PermissionDenied) => None,
        Err(_) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A port that only privileged users may bind is asked for with a connection.
    #[test]
    fn a_refused_permission_shows_no_listener() {
        let of = |kind: io::ErrorKind| is_free_after_bind(&Err(kind.into()));
        assert_eq!(is_free_after_bind(&Ok(())), Some(true));
        assert_eq!(of(io::ErrorKind::AddrNotAvailable), Some(true));
        assert_eq!(of(io::ErrorKind::AddrInUse), Some(false));
        assert_eq!(of(io::ErrorKind::PermissionDenied), None);
    }

    #[tokio::test]
    async fn only_a_target_without_a_listener_causes_a_warning() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target: Target = address.to_string().parse().unwrap();
        assert_eq!(warning(&target).await, None);
        // The probe opens no connection.
        let accepted = timeout(std::time::Duration::ZERO, listener.accept()).await;
        assert!(accepted.is_err());
        // A service on all addresses of this machine.
        let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = everywhere.local_addr().unwrap().port();
        let target: Target = format!("localhost:{port}").parse().unwrap();
        assert_eq!(warning(&target).await, None);
        drop(everywhere);
        let closed = format!("127.0.0.1:{}", ports::lease());
        let text = warning(&closed.parse().unwrap()).await.unwrap();
        assert!(text.contains(&closed), "{text}");
        let socket: Target = "unix:/nonexistent/service.sock".parse().unwrap();
        assert!(warning(&socket).await.is_some());
    }
}
