//! PROXY protocol, versions 1 and 2: the source address of a connection through a proxy.
//!
//! A proxy that forwards a connection puts one header in front of its bytes. Version 1 is a line of
//! text (`PROXY TCP4 192.0.2.1 198.51.100.1 40000 443` and CR LF). Version 2 is binary: a signature
//! of 12 bytes, version and command, family and transport, the length of the rest, the addresses,
//! and any extensions of the sender. Sections are those of the specification, "The PROXY protocol,
//! versions 1 & 2" (`doc/proxy-protocol.txt` of `HAProxy`).
//!
//! This module reads no sockets and has no list of trusted peers. A header from an untrusted peer
//! may be forged, so use [`parse`] only for the bytes of trusted peers (section 2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header that is read, in bytes: the size that any path delivers in its first segment (RFC
/// 9293, 3.7.1). Addresses take at most 232 bytes of it, the rest is for extensions.
pub const MAX_HEADER: usize = 536;

/// The result of parsing the start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedHeader {
    /// It may become a header; more bytes are needed. Never returned for [`MAX_HEADER`] bytes or
    /// more.
    Partial,
    /// It is not a header: the bytes belong to the connection.
    Absent,
    /// A whole header.
    Header {
        /// Source of the connection, IPv4 inside IPv6 as IPv4. None if the connection is the
        /// proxy's own (a health check), or if the source has no such address.
        source: Option<SocketAddr>,
        /// Length of the header in bytes; the connection's own bytes follow it.
        len: usize,
    },
    /// It starts like a header and is invalid. The connection must be closed (2.1, 2.2).
    Malformed,
}

/// Parses the header at the start of `bytes`, which are all bytes received so far.
pub fn parse(bytes: &[u8]) -> ParsedHeader {
    let begins = |signature: &[u8]| {
        bytes
            .iter()
            .zip(signature)
            .all(|(byte, wanted)| byte == wanted)
    };
    let parsed = if begins(V2_SIGNATURE) {
        parse_v2(bytes)
    } else if begins(V1_SIGNATURE) {
        parse_v1(bytes)
    } else {
        return ParsedHeader::Absent;
    };
    match parsed {
        Ok(Some((source, len))) => ParsedHeader::Header { source, len },
        Ok(None) => ParsedHeader::Partial,
        Err(MalformedHeader) => ParsedHeader::Malformed,
    }
}

/// The number of further bytes, at least 1, that are certainly part of the header that starts with
/// `received`. A reader that takes only these takes no byte after the header.
pub fn next_part(received: &[u8]) -> usize {
    if received.len() < SHORTEST {
        return SHORTEST - received.len();
    }
    if !received.starts_with(V2_SIGNATURE) {
        return 1;
    }
    let Some([high, low]) = received.get(V2_HEAD - 2..V2_HEAD) else {
        return 1;
    };
    let len = V2_HEAD + usize::from(u16::from_be_bytes([*high, *low]));
    len.saturating_sub(received.len()).max(1)
}

/// Appends a header of version 1 for a connection from `source` to `destination`. Without a source
/// the header states an unknown origin.
pub fn write_v1(source: Option<SocketAddr>, destination: SocketAddr, out: &mut Vec<u8>) {
    let line = match source.map(|source| Ends::new(source, destination)) {
        None => "PROXY UNKNOWN\r\n".to_owned(),
        Some(Ends::V4([source, destination], [from, to])) => {
            format!("PROXY TCP4 {source} {destination} {from} {to}\r\n")
        }
        Some(Ends::V6([source, destination], [from, to])) => {
            format!("PROXY TCP6 {source} {destination} {from} {to}\r\n")
        }
    };
    out.extend_from_slice(line.as_bytes());
}

/// Appends a header of version 2 for a connection from `source` to `destination`. Without a source
/// the header has no addresses (2.2, UNSPEC).
pub fn write_v2(source: Option<SocketAddr>, destination: SocketAddr, out: &mut Vec<u8>) {
    let ends = source.map(|source| Ends::new(source, destination));
    let (family, block_len) = match ends {
        None => (UNSPEC, 0),
        Some(Ends::V4(..)) => (TCP4, 12),
        Some(Ends::V6(..)) => (TCP6, 36),
    };
    out.extend_from_slice(V2_SIGNATURE);
    out.extend_from_slice(&[VERSION_2 | PROXY, family, 0, block_len]);
    let ports = match ends {
        None => return,
        Some(Ends::V4(addresses, ports)) => {
            out.extend(addresses.iter().flat_map(Ipv4Addr::octets));
            ports
        }
        Some(Ends::V6(addresses, ports)) => {
            out.extend(addresses.iter().flat_map(Ipv6Addr::octets));
            ports
        }
    };
    out.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
}

struct MalformedHeader;

/// A header's source and length; `None` while more bytes are needed.
type Read = Result<Option<(Option<SocketAddr>, usize)>, MalformedHeader>;

fn parse_v1(bytes: &[u8]) -> Read {
    let window = bytes.get(..V1_MAX).unwrap_or(bytes);
    let Some(line_len) = window.iter().position(|byte| *byte == b'\r') else {
        return partial_below(window.len(), V1_MAX);
    };
    let len = line_len + 2;
    match window.get(line_len + 1) {
        Some(b'\n') => {}
        Some(_) => return Err(MalformedHeader),
        None => return partial_below(window.len(), V1_MAX),
    }
    let line = window
        .get(V1_SIGNATURE.len()..line_len)
        .and_then(|line| std::str::from_utf8(line).ok());
    let mut words = line.ok_or(MalformedHeader)?.split(' ');
    let mut word = || words.next().ok_or(MalformedHeader);
    let source = match word()? {
        // The rest of the line is ignored.
        "UNKNOWN" => return Ok(Some((None, len))),
        "TCP4" => v1_source::<Ipv4Addr>([word()?, word()?], [word()?, word()?])?,
        "TCP6" => v1_source::<Ipv6Addr>([word()?, word()?], [word()?, word()?])?,
        _ => return Err(MalformedHeader),
    };
    match words.next() {
        None => Ok(Some((Some(source), len))),
        Some(_) => Err(MalformedHeader),
    }
}

/// Both addresses must belong to the family, although only one is used.
fn v1_source<A>(addresses: [&str; 2], ports: [&str; 2]) -> Result<SocketAddr, MalformedHeader>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let address = |text: &str| text.parse::<A>().map_err(|_| MalformedHeader);
    let [source, destination] = addresses;
    let (source, _) = (address(source)?, address(destination)?);
    let [from, to] = ports;
    let (from, _) = (v1_port(from)?, v1_port(to)?);
    Ok(SocketAddr::new(source.into().to_canonical(), from))
}

fn v1_port(text: &str) -> Result<u16, MalformedHeader> {
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if leading_zero || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(MalformedHeader);
    }
    text.parse().map_err(|_| MalformedHeader)
}

fn parse_v2(bytes: &[u8]) -> Read {
    let Some((head, rest)) = bytes.split_first_chunk::<V2_HEAD>() else {
        // An invalid command is an error even before the header is complete.
        let command = bytes.get(V2_SIGNATURE.len()).copied();
        return match command {
            Some(command) if !is_command(command) => Err(MalformedHeader),
            _ => Ok(None),
        };
    };
    let [.., command, family, high, low] = *head;
    let block_len = usize::from(u16::from_be_bytes([high, low]));
    let len = V2_HEAD + block_len;
    if !is_command(command) || len > MAX_HEADER {
        return Err(MalformedHeader);
    }
    let Some(block) = rest.get(..block_len) else {
        return Ok(None);
    };
    if command == VERSION_2 | LOCAL {
        // The family is not used then.
        return Ok(Some((None, len)));
    }
    let (address_family, transport) = (family >> 4, family & 0x0F);
    if address_family > 3 || transport > 2 {
        return Err(MalformedHeader);
    }
    let source = match family {
        TCP4 => v2_source::<4, 12>(block)?,
        TCP6 => v2_source::<16, 36>(block)?,
        // Valid, but not a possible source of a TCP connection (2.2: falls back to UNSPEC).
        _ => return Ok(Some((None, len))),
    };
    Ok(Some((Some(source), len)))
}

/// Reads source, destination and both ports. The extensions after them are not used.
fn v2_source<const ADDRESS: usize, const BLOCK: usize>(
    block: &[u8],
) -> Result<SocketAddr, MalformedHeader>
where
    [u8; ADDRESS]: Into<IpAddr>,
{
    let block = block.first_chunk::<BLOCK>().ok_or(MalformedHeader)?;
    let source = *block.first_chunk::<ADDRESS>().ok_or(MalformedHeader)?;
    let ports = block.last_chunk::<4>().ok_or(MalformedHeader)?;
    let [high, low, ..] = *ports;
    let ip: IpAddr = source.into();
    Ok(SocketAddr::new(
        ip.to_canonical(),
        u16::from_be_bytes([high, low]),
    ))
}

fn partial_below(len: usize, max: usize) -> Read {
    if len < max {
        Ok(None)
    } else {
        Err(MalformedHeader)
    }
}

fn is_command(byte: u8) -> bool {
    byte == VERSION_2 | LOCAL || byte == VERSION_2 | PROXY
}

/// Source and destination of one family, with their ports.
#[derive(Clone, Copy)]
enum Ends {
    V4([Ipv4Addr; 2], [u16; 2]),
    V6([Ipv6Addr; 2], [u16; 2]),
}

impl Ends {
    fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        let ports = [source.port(), destination.port()];
        let ends = (source.ip().to_canonical(), destination.ip().to_canonical());
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = ends {
            return Self::V4([source, destination], ports);
        }
        // A header has one family: an IPv4 address is mapped to IPv6 if the other one is IPv6.
        let widened = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self::V6([widened(ends.0), widened(ends.1)], ports)
    }
}

/// Length of the shortest header, `PROXY UNKNOWN` and CR LF.
const SHORTEST: usize = 15;

/// Section 2.1.
const V1_SIGNATURE: &[u8] = b"PROXY ";
/// Longest line, including its end (2.1, worst case).
const V1_MAX: usize = 107;

/// Section 2.2.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, length.
const V2_HEAD: usize = 16;
const VERSION_2: u8 = 0x20;
const LOCAL: u8 = 0x0;
const PROXY: u8 = 0x1;
const UNSPEC: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

#[cfg(test)]
mod tests;
