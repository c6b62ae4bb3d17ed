//! One allocation: its owner, its permissions and its channels.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use credentials::turn::PasswordKey;
use stun_types::message::TransactionId;

use super::integrity::Key;
use super::quota::Permit;
use super::{Account, AllocationId, Client, ConnectionNumber, Limits, Millis, Transport};

/// Relayed addresses and permissions of one client.
#[derive(Debug)]
pub(super) struct Allocation<S> {
    pub(super) id: AllocationId,
    pub(super) client: Client,
    /// Transaction id and response of the Allocate request. A repeated request gets the same
    /// response (RFC 8656 section 7.2).
    pub(super) transaction: TransactionId,
    pub(super) answer: Box<[u8]>,
    /// Username of the owner. Only the owner may change the allocation.
    pub(super) username: Box<str>,
    pub(super) key: Key,
    /// Source of the password, to detect when it is no longer valid.
    pub(super) secret: Arc<PasswordKey>,
    pub(super) account: Account,
    pub(super) created: Millis,
    pub(super) expires: Millis,
    /// Transport to peers.
    pub(super) transport: Transport,
    /// IPv4, then IPv6. There is at least one.
    pub(super) relays: [Option<S>; 2],
    /// Connections with peers of a TCP allocation.
    pub(super) connections: Vec<ConnectionNumber>,
    permissions: Vec<Permission>,
    channels: Vec<Channel>,
    pub(super) permit: Permit,
}

#[derive(Debug)]
struct Permission {
    peer: IpAddr,
    expires: Millis,
}

#[derive(Debug)]
struct Channel {
    number: u16,
    peer: SocketAddr,
    expires: Millis,
}

/// Reasons for which a permission or a channel is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermissionError {
    /// The limit is reached.
    Full,
    /// The number is bound to another peer, or the peer to another number.
    Taken,
}

/// Owner of a new allocation, and the id of its Allocate request.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) client: Client,
    pub(super) transaction: TransactionId,
    pub(super) username: Box<str>,
    pub(super) key: Key,
    pub(super) secret: Arc<PasswordKey>,
    pub(super) account: Account,
}

impl<S> Allocation<S> {
    pub(super) fn new(
        id: AllocationId,
        owner: Owner,
        permit: Permit,
        transport: Transport,
        relays: [Option<S>; 2],
        lifetime: Range<Millis>,
        answer: Box<[u8]>,
    ) -> Self {
        Self {
            id,
            client: owner.client,
            transaction: owner.transaction,
            answer,
            username: owner.username,
            key: owner.key,
            secret: owner.secret,
            account: owner.account,
            created: lifetime.start,
            expires: lifetime.end,
            transport,
            relays,
            connections: Vec::new(),
            permissions: Vec::new(),
            channels: Vec::new(),
            permit,
        }
    }

    /// The relayed address that reaches peers of this family.
    pub(super) fn relay_for(&self, peer: IpAddr) -> Option<&S> {
        let [v4, v6] = &self.relays;
        if peer.is_ipv4() {
            v4.as_ref()
        } else {
            v6.as_ref()
        }
    }

    /// True if data from and to this address is relayed.
    pub(super) fn permits(&self, peer: IpAddr, now: Millis) -> bool {
        self.permissions
            .iter()
            .any(|permission| permission.peer == peer && now < permission.expires)
    }

    /// Creates or refreshes permissions, all of them or none.
    pub(super) fn permit(
        &mut self,
        peers: &[IpAddr],
        now: Millis,
        max_permissions: usize,
    ) -> Result<(), PermissionError> {
        let expires = now.after(PERMISSION_LIFETIME);
        self.permissions
            .retain(|permission| now < permission.expires);
        let is_known = |all: &[Permission], peer| all.iter().any(|known| known.peer == peer);
        let fresh = peers.iter().enumerate().filter(|(index, peer)| {
            let is_first = !peers.iter().take(*index).any(|earlier| earlier == *peer);
            is_first && !is_known(&self.permissions, **peer)
        });
        if self.permissions.len() + fresh.count() > max_permissions {
            return Err(PermissionError::Full);
        }
        for peer in peers {
            match self
                .permissions
                .iter_mut()
                .find(|known| known.peer == *peer)
            {
                Some(known) => known.expires = expires,
                None => self.permissions.push(Permission {
                    peer: *peer,
                    expires,
                }),
            }
        }
        Ok(())
    }

    /// Binds or refreshes a channel, and creates its permission.
    pub(super) fn bind(
        &mut self,
        number: u16,
        peer: SocketAddr,
        now: Millis,
        limits: Limits,
    ) -> Result<(), PermissionError> {
        let expires = now.after(CHANNEL_LIFETIME);
        self.channels.retain(|channel| now < channel.expires);
        let is_either = |known: &&Channel| known.number == number || known.peer == peer;
        match self.channels.iter().find(is_either) {
            Some(known) if known.number == number && known.peer == peer => {}
            Some(_) => return Err(PermissionError::Taken),
            None if self.channels.len() >= limits.channels => return Err(PermissionError::Full),
            None => {}
        }
        self.permit(&[peer.ip()], now, limits.permissions)?;
        match self
            .channels
            .iter_mut()
            .find(|known| known.number == number)
        {
            Some(known) => known.expires = expires,
            None => self.channels.push(Channel {
                number,
                peer,
                expires,
            }),
        }
        Ok(())
    }

    /// The peer of a valid channel.
    pub(super) fn peer_of(&self, number: u16, now: Millis) -> Option<SocketAddr> {
        let channel = self.channels.iter().find(|known| known.number == number)?;
        (now < channel.expires && self.permits(channel.peer.ip(), now)).then_some(channel.peer)
    }

    /// The valid channel of a peer.
    pub(super) fn channel_of(&self, peer: SocketAddr, now: Millis) -> Option<u16> {
        let channel = self.channels.iter().find(|known| known.peer == peer)?;
        (now < channel.expires).then_some(channel.number)
    }

    /// Number of stored permissions and channels.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.permissions.len(), self.channels.len())
    }
}

/// RFC 8656 section 9.
const PERMISSION_LIFETIME: Millis = Millis::from_seconds(300);
/// RFC 8656 section 12.
const CHANNEL_LIFETIME: Millis = Millis::from_seconds(600);
