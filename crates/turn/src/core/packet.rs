//! Headers of data for the client. They are written in front of the data in its receive buffer, so
//! that nothing is copied.

use std::net::{IpAddr, SocketAddr};

use super::frame::MAGIC_COOKIE;

/// Encapsulation of a peer's data for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataHeader {
    /// Channel data (RFC 8656 section 12.4).
    Channel(u16),
    /// A Data indication (RFC 8656 section 11.6) from this peer.
    Indication {
        /// Address of the peer.
        peer: SocketAddr,
        /// Random transaction id.
        transaction: [u8; 12],
    },
}

/// Space that is needed in front of the data: the indication of an IPv6 peer.
pub const HEADROOM: usize = 20 + 24 + 4;
/// Space that is needed after the data.
pub const TAILROOM: usize = 3;

/// Data indication (RFC 8656 section 18: method 7, class indication).
const DATA_INDICATION: [u8; 2] = [0x00, 0x17];
const XOR_PEER_ADDRESS: [u8; 2] = [0x00, 0x12];
const DATA: [u8; 2] = [0x00, 0x13];

impl DataHeader {
    /// Encapsulates `length` bytes of data that start at [`HEADROOM`] in `buffer`, and returns the
    /// range of the result. On streams channel data is also padded. `None` if the buffer is too
    /// short.
    pub fn apply(
        self,
        buffer: &mut [u8],
        length: usize,
        is_stream: bool,
    ) -> Option<std::ops::Range<usize>> {
        let size = u16::try_from(length).ok()?;
        let padding = length.next_multiple_of(4) - length;
        let mut header = [0; HEADROOM];
        let (header, padding) = match self {
            Self::Channel(number) => {
                let [high, low] = size.to_be_bytes();
                let [a, b] = number.to_be_bytes();
                let place = header.first_chunk_mut()?;
                *place = [a, b, high, low];
                (&header[..4], if is_stream { padding } else { 0 })
            }
            Self::Indication { peer, transaction } => {
                let (address, bytes) = xored(peer, transaction);
                let address = address.get(..bytes)?;
                let whole = 4 + bytes + 4 + length + padding;
                let whole = u16::try_from(whole).ok()?.to_be_bytes();
                let address_size = u16::try_from(bytes).ok()?.to_be_bytes();
                let parts: [&[u8]; 9] = [
                    &DATA_INDICATION,
                    &whole,
                    &MAGIC_COOKIE,
                    &transaction,
                    &XOR_PEER_ADDRESS,
                    &address_size,
                    address,
                    &DATA,
                    &size.to_be_bytes(),
                ];
                let mut end = 0;
                for part in parts {
                    header.get_mut(end..end + part.len())?.copy_from_slice(part);
                    end += part.len();
                }
                (header.get(..end)?, padding)
            }
        };
        let start = HEADROOM - header.len();
        let data_end = HEADROOM + length;
        buffer.get_mut(start..HEADROOM)?.copy_from_slice(header);
        buffer.get_mut(data_end..data_end + padding)?.fill(0);
        Some(start..data_end + padding)
    }
}

/// The value of XOR-PEER-ADDRESS (RFC 8489 section 14.2), and its length.
fn xored(peer: SocketAddr, transaction: [u8; 12]) -> ([u8; 20], usize) {
    let mut value = [0; 20];
    let mask = MAGIC_COOKIE.iter().chain(&transaction);
    let octets = |value: &mut [u8; 20], family: u8, octets: &[u8]| {
        let [high, low] = peer.port().to_be_bytes();
        let [m0, m1, ..] = MAGIC_COOKIE;
        let head = [0, family, high ^ m0, low ^ m1];
        let masked = octets.iter().zip(mask).map(|(octet, mask)| octet ^ mask);
        for (place, byte) in value.iter_mut().zip(head.into_iter().chain(masked)) {
            *place = byte;
        }
        4 + octets.len()
    };
    let bytes = match peer.ip() {
        IpAddr::V4(ip) => octets(&mut value, 1, &ip.octets()),
        IpAddr::V6(ip) => octets(&mut value, 2, &ip.octets()),
    };
    (value, bytes)
}

/// Splits channel data (RFC 8656 section 12.4) into number and data. Bytes after the data are
/// padding.
pub fn channel_data(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (&[a, b, high, low], rest) = bytes.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    Some((u16::from_be_bytes([a, b]), rest.get(..length)?))
}

#[cfg(test)]
mod tests {
    use stun_types::message::{Message, MessageClass};
    use turn_types::attribute::{Data, XorPeerAddress};
    use turn_types::channel::ChannelData;

    use super::*;

    fn wrapped(wrap: DataHeader, data: &[u8], is_stream: bool) -> Vec<u8> {
        let mut buffer = vec![0xee; HEADROOM + data.len() + TAILROOM];
        buffer[HEADROOM..HEADROOM + data.len()].copy_from_slice(data);
        let range = wrap.apply(&mut buffer, data.len(), is_stream).unwrap();
        buffer[range].to_vec()
    }

    /// Another implementation can parse the written messages.
    #[test]
    fn indications_are_read_by_the_library() {
        for peer in ["192.0.2.1:32853", "[2001:db8::1:2]:9"] {
            let peer = peer.parse().unwrap();
            for length in [0, 1, 2, 3, 4, 5, 1200, 65_000] {
                let data: Vec<u8> = (0..length)
                    .map(|index: u32| index.to_le_bytes()[0])
                    .collect();
                let transaction = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2];
                let bytes = wrapped(DataHeader::Indication { peer, transaction }, &data, false);
                let message = Message::from_bytes(&bytes).unwrap();
                assert!(message.has_class(MessageClass::Indication));
                assert!(message.has_method(turn_types::message::DATA));
                assert_eq!(bytes.len() % 4, 0);
                let from: XorPeerAddress = message.attribute().unwrap();
                assert_eq!(from.addr(message.transaction_id()), peer);
                let found: Data<'_> = message.attribute().unwrap();
                assert_eq!(found.data(), data);
            }
        }
    }

    #[test]
    fn channel_data_is_only_padded_on_streams() {
        for length in 0..9 {
            let data = vec![7; length];
            let packet = wrapped(DataHeader::Channel(0x4001), &data, false);
            assert_eq!(packet.len(), 4 + length);
            let read = ChannelData::parse(&packet).unwrap();
            assert_eq!((read.id(), read.data()), (0x4001, &data[..]));
            assert_eq!(channel_data(&packet), Some((0x4001, &data[..])));
            let framed = wrapped(DataHeader::Channel(0x4001), &data, true);
            assert_eq!(framed.len(), 4 + length.next_multiple_of(4));
            assert_eq!(channel_data(&framed), Some((0x4001, &data[..])));
        }
    }

    #[test]
    fn a_buffer_that_is_too_short_is_rejected() {
        let channel = DataHeader::Channel(0x4000);
        assert_eq!(channel.apply(&mut [0; HEADROOM], 1, true), None);
        assert_eq!(channel.apply(&mut vec![0; 70_000], 65_536, false), None);
        assert_eq!(channel_data(&[0x40, 0, 0, 5, 1, 2, 3, 4]), None);
        assert_eq!(channel_data(&[0x40, 0, 0]), None);
    }
}
