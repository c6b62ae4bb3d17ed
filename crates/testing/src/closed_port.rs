//! Services that are down.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// An address without a listener. Connections to it are refused while this value exists. A released
/// port could be used by another process at any time.
pub struct ClosedPort(TcpSocket);

impl ClosedPort {
    /// Takes a free port of the loopback interface.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(any).expect("a free port");
        Self(socket)
    }

    /// The address without a listener.
    pub fn addr(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }
}

impl Default for ClosedPort {
    fn default() -> Self {
        Self::new()
    }
}
