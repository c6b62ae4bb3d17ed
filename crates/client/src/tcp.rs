//! TCP connections: the first of several addresses that answers.

use std::{io, net::SocketAddr, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::timeout};

/// No address answers. The cause is that of the last one.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The network, or the machine at the address, refuses.
    Network(io::Error),
    /// There is no answer in time.
    TimedOut,
}

/// Tries each address in turn and returns the last error.
pub(crate) async fn dial_first(
    addresses: &[SocketAddr],
) -> Result<(TcpStream, SocketAddr), DialError> {
    let mut last = DialError::TimedOut;
    for &address in addresses {
        last = match timeout(DIAL, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small frames must not wait for an acknowledgement, and a connection that a
                // middlebox dropped must not look alive. A kernel that refuses an option still
                // carries the bytes.
                drop(stream.set_nodelay(true));
                drop(SockRef::from(&stream).set_tcp_keepalive(&keepalive()));
                return Ok((stream, address));
            }
            Ok(Err(error)) => DialError::Network(error),
            Err(_elapsed) => DialError::TimedOut,
        };
    }
    Err(last)
}

/// Half a minute of silence, then three probes. Standing connections may be silent for a long time,
/// and NAT devices drop silent connections after some minutes.
pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
        .with_retries(3)
}

/// Time limit of name resolution. A resolver usually tries two servers in this time.
pub(crate) const RESOLVE: Duration = Duration::from_secs(10);

/// Time limit of one address: three SYNs (at 0, 1 and 3 seconds) and the last response.
const DIAL: Duration = Duration::from_secs(5);
