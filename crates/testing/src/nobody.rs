//! Services that are down.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// An address where nobody listens. Connections to it are refused for as long as this is kept: a port
/// that is let go of may be anybody's in the next moment.
pub struct Nobody(TcpSocket);

impl Nobody {
    /// Takes a free port of the loopback interface.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(any).expect("a free port");
        Self(socket)
    }

    /// Where nobody is.
    pub fn addr(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }
}

impl Default for Nobody {
    fn default() -> Self {
        Self::new()
    }
}
