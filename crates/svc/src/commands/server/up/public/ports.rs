//! The ports of a public server, checked before anything is started.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use super::super::Args;
use super::options::{DnsWay, PublicOptions};
use crate::failure::Failure;

/// All ports. 0 selects a free one.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublicPorts {
    pub(super) engine: u16,
    pub(super) http: u16,
    pub(super) metrics: u16,
    pub(super) platform: u16,
    /// The platform's second listener, for this machine.
    pub(super) local: u16,
    pub(super) turn: u16,
    pub(super) turn_tls: u16,
}

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// A port that cannot be used.
#[derive(Debug)]
pub(super) struct PortProblem {
    address: SocketAddr,
    transport: Transport,
    /// The user of the port.
    purpose: &'static str,
    error: io::Error,
}

impl PublicPorts {
    /// The given ports, or the standard ones. With `--port 0` the others are free ones as well,
    /// except the TLS port of the relay.
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        let is_free = args.port == Some(0);
        let or =
            |given: Option<u16>, standard: u16| given.unwrap_or(if is_free { 0 } else { standard });
        let ports = Self {
            engine: or(args.port, 443),
            http: or(args.http_port, 80),
            metrics: or(args.metrics_port, 8444),
            platform: or(args.platform_port, 8445),
            local: match args.platform_port {
                None => or(None, 8446),
                Some(0) => 0,
                Some(port) => port.saturating_add(1),
            },
            turn: or(args.turn_port, 3478),
            turn_tls: args.turn_tls_port.unwrap_or(5349),
        };
        if ports.turn_tls == 0 {
            let message = "the engine forwards validations to the TLS port of the relay";
            return Err(Failure::usage(message).hint("give --turn-tls-port another port than 0"));
        }
        Ok(ports)
    }

    /// The ports that cannot be used.
    pub(super) fn problems(&self, options: &PublicOptions) -> Vec<PortProblem> {
        let mut wanted = Vec::new();
        let listen = options.addresses.listen;
        let mut want = |ip: IpAddr, port, transport, purpose| {
            wanted.push((SocketAddr::from((ip, port)), transport, purpose));
        };
        want(listen, self.engine, Transport::Tcp, "the engine");
        want(listen, self.http, Transport::Tcp, "redirects to https");
        if let DnsWay::Responder { port, .. } = options.dns {
            for ip in options.addresses.name_server() {
                want(ip, port, Transport::Udp, "the own name server");
                want(ip, port, Transport::Tcp, "the own name server");
            }
        }
        for ip in options.addresses.exact() {
            want(ip, self.turn, Transport::Udp, "the relay");
            want(ip, self.turn, Transport::Tcp, "the relay");
            want(ip, self.turn_tls, Transport::Tcp, "the relay");
        }
        for port in [self.metrics, self.platform, self.local] {
            let ip = Ipv4Addr::LOCALHOST.into();
            want(ip, port, Transport::Tcp, "programs on this machine");
        }
        let problems = wanted
            .into_iter()
            .filter_map(|(address, transport, purpose)| {
                let error = transport.bind(address).err()?;
                Some(PortProblem {
                    address,
                    transport,
                    purpose,
                    error,
                })
            });
        problems.collect()
    }
}

impl Transport {
    /// Binds the address for a moment.
    fn bind(self, address: SocketAddr) -> io::Result<()> {
        match self {
            Self::Tcp => TcpListener::bind(address).map(drop),
            Self::Udp => UdpSocket::bind(address).map(drop),
        }
    }
}

impl fmt::Display for PortProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address, purpose, ..
        } = self;
        let (name, flag) = match self.transport {
            Transport::Tcp => ("TCP", 't'),
            Transport::Udp => ("UDP", 'u'),
        };
        let port = address.port();
        write!(f, "port    {address} ({name}, for {purpose}): ")?;
        match self.error.kind() {
            ErrorKind::AddrInUse if port == 53 => write!(
                f,
                "in use by a resolver or name server, which `ss -ln{flag}p 'sport = :53'` shows; \
                 stop it or restrict it to loopback (systemd-resolved: DNSStubListener=no), or \
                 publish the records with --dns-program or --dns-update"
            ),
            ErrorKind::AddrInUse => write!(
                f,
                "in use; `ss -ln{flag}p 'sport = :{port}'` shows the program, which must stop"
            ),
            ErrorKind::PermissionDenied => write!(
                f,
                "not permitted; run it as a service with CAP_NET_BIND_SERVICE, or `sudo setcap \
                 cap_net_bind_service=+ep` on the program"
            ),
            ErrorKind::AddrNotAvailable => write!(
                f,
                "this machine does not have the address; give another --listen-address, or none"
            ),
            _ => write!(f, "{}", self.error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(port: u16, kind: ErrorKind) -> String {
        let problem = PortProblem {
            address: (Ipv4Addr::UNSPECIFIED, port).into(),
            transport: Transport::Tcp,
            purpose: "the engine",
            error: kind.into(),
        };
        problem.to_string()
    }

    #[test]
    fn each_problem_has_its_next_step() {
        for (port, kind, expected) in [
            (443, ErrorKind::AddrInUse, "ss -lntp 'sport = :443'"),
            (53, ErrorKind::AddrInUse, "DNSStubListener=no"),
            (53, ErrorKind::AddrInUse, "ss -lntp 'sport = :53'"),
            (443, ErrorKind::AddrNotAvailable, "--listen-address"),
            (80, ErrorKind::PermissionDenied, "CAP_NET_BIND_SERVICE"),
        ] {
            let text = text(port, kind);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains(&format!("0.0.0.0:{port} (TCP")), "{text}");
        }
    }

    #[test]
    fn a_port_in_use_is_found() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = Transport::Tcp.bind(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(Transport::Tcp.bind("127.0.0.1:0".parse().unwrap()).is_ok());
    }
}
