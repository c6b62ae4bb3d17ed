//! Listening sockets that several workers share.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Limit of connections that wait to be accepted. The kernel applies its own limit as well.
const BACKLOG: i32 = 4096;

/// Binds one listening socket for each of `count` workers to the same address. For port 0 the
/// kernel chooses the port of the first socket, and the other sockets use the same port.
///
/// # Errors
/// The address cannot be bound, for instance because another process uses it.
pub(crate) fn bind(addr: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // The first socket is bound without sharing, so that a second engine on the same port fails to
    // start instead of taking half of the connections.
    drop(listener(addr, false)?);
    let first = listener(addr, true)?;
    let addr = first.local_addr()?;
    bind_like(first, addr, count)
}

/// Adds sockets on the same address until there are `count`.
///
/// # Errors
/// The address cannot be bound again.
pub(crate) fn bind_like(
    first: std::net::TcpListener,
    addr: SocketAddr,
    count: usize,
) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners = vec![first];
    while listeners.len() < count {
        listeners.push(listener(addr, true)?);
    }
    Ok(listeners)
}

/// Uses the listening sockets of another process or of the supervisor for `count` workers. There may
/// be more of them than workers: connections wait in each.
///
/// # Errors
/// The system refuses an option, or another descriptor.
pub(crate) fn adopt(
    mut listeners: Vec<std::net::TcpListener>,
    count: usize,
) -> io::Result<Vec<std::net::TcpListener>> {
    for listener in &listeners {
        listener.set_nonblocking(true)?;
        SockRef::from(listener).set_tcp_keepalive(&keepalive())?;
    }
    let missing = count.saturating_sub(listeners.len());
    let copies = listeners.iter().cycle().take(missing);
    // Workers may share a socket. Another one would not get the connections that wait already.
    let copies: Vec<_> = copies
        .map(std::net::TcpListener::try_clone)
        .collect::<io::Result<_>>()?;
    listeners.extend(copies);
    Ok(listeners)
}

/// Creates one non-blocking listening socket.
pub(super) fn listener(addr: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() && addr.ip().is_unspecified() {
        // `[::]` means all addresses, including IPv4.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit this option.
    socket.set_tcp_keepalive(&keepalive())?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Keep-alive that detects a vanished peer within two minutes, even if no data is sent to it. A
/// WebSocket or a TCP tunnel may be silent for hours, and would otherwise keep its stream forever.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_mins(1))
        .with_interval(Duration::from_secs(15))
        .with_retries(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_sockets_use_keep_alive() {
        let listener = listener(SocketAddr::from(([127, 0, 0, 1], 0)), true).unwrap();
        let _visitor = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = socket2::SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap());
        assert_eq!(
            accepted.tcp_keepalive_time().unwrap(),
            Duration::from_mins(1)
        );
    }

    #[test]
    fn adopted_sockets_are_all_used_and_enough() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = bind(addr, 2).unwrap();
        let addr = bound[0].local_addr().unwrap();
        let adopted = adopt(bound, 3).unwrap();
        assert_eq!(adopted.len(), 3);
        assert!(adopted.iter().all(|one| one.local_addr().unwrap() == addr));
        assert_eq!(adopt(adopted, 1).unwrap().len(), 3);
    }

    #[test]
    fn only_workers_share_an_address() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = bind(addr, 3).unwrap();
        let bound = listeners[0].local_addr().unwrap();
        assert!(
            listeners
                .iter()
                .all(|listener| listener.local_addr().unwrap() == bound)
        );
        let error = bind(bound, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
