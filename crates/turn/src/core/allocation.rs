//! One allocation: who made it, what it may send to, and how that is abbreviated.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use credentials::turn::PasswordKey;
use stun_types::message::TransactionId;

use super::integrity::Key;
use super::quota::Permit;
use super::{Account, AllocationId, Client, ConnectionNumber, Limits, Millis, Transport};

/// A place on a relay, for one client.
#[derive(Debug)]
pub(super) struct Allocation<S> {
    pub(super) id: AllocationId,
    pub(super) client: Client,
    /// What the client asked for it with, and what it was answered: the same again where that is
    /// asked again (RFC 8656 section 7.2).
    pub(super) transaction: TransactionId,
    pub(super) answer: Box<[u8]>,
    /// Whose it is: the only one who may change it.
    pub(super) username: Box<str>,
    pub(super) key: Key,
    /// What the password came of, to know when that holds no more.
    pub(super) secret: Arc<PasswordKey>,
    pub(super) account: Account,
    pub(super) expires: Millis,
    /// How it reaches peers.
    pub(super) transport: Transport,
    /// IPv4, then IPv6; at least one.
    pub(super) relays: [Option<S>; 2],
    /// Its connections with peers, where it has such.
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

/// Why there is no permission, or no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermissionError {
    /// There are as many as there may be.
    Full,
    /// Number or peer is bound to another one.
    Taken,
}

/// What a new allocation begins with.
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
        expires: Millis,
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
            expires,
            transport,
            relays,
            connections: Vec::new(),
            permissions: Vec::new(),
            channels: Vec::new(),
            permit,
        }
    }

    /// The relay that reaches peers of this family.
    pub(super) fn relay_for(&self, peer: IpAddr) -> Option<&S> {
        let [v4, v6] = &self.relays;
        if peer.is_ipv4() {
            v4.as_ref()
        } else {
            v6.as_ref()
        }
    }

    /// Whether data from and to this address is relayed.
    pub(super) fn permits(&self, peer: IpAddr, now: Millis) -> bool {
        self.permissions
            .iter()
            .any(|permission| permission.peer == peer && now < permission.expires)
    }

    /// Makes permissions, all of them or none, or begins their time anew.
    pub(super) fn permit(
        &mut self,
        peers: &[IpAddr],
        now: Millis,
        most: usize,
    ) -> Result<(), PermissionError> {
        let expires = now.after(PERMISSION_LIFETIME);
        self.permissions
            .retain(|permission| now < permission.expires);
        let is_known = |all: &[Permission], peer| all.iter().any(|known| known.peer == peer);
        let fresh = peers.iter().enumerate().filter(|(index, peer)| {
            let is_first = !peers.iter().take(*index).any(|earlier| earlier == *peer);
            is_first && !is_known(&self.permissions, **peer)
        });
        if self.permissions.len() + fresh.count() > most {
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

    /// Binds a channel, or begins its time anew; makes the permission as well.
    pub(super) fn bind(
        &mut self,
        number: u16,
        peer: SocketAddr,
        now: Millis,
        most: Limits,
    ) -> Result<(), PermissionError> {
        let expires = now.after(CHANNEL_LIFETIME);
        self.channels.retain(|channel| now < channel.expires);
        let is_either = |known: &&Channel| known.number == number || known.peer == peer;
        match self.channels.iter().find(is_either) {
            Some(known) if known.number == number && known.peer == peer => {}
            Some(_) => return Err(PermissionError::Taken),
            None if self.channels.len() >= most.channels => return Err(PermissionError::Full),
            None => {}
        }
        self.permit(&[peer.ip()], now, most.permissions)?;
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

    /// The peer of a channel that may be sent to.
    pub(super) fn peer_of(&self, number: u16, now: Millis) -> Option<SocketAddr> {
        let channel = self.channels.iter().find(|known| known.number == number)?;
        (now < channel.expires && self.permits(channel.peer.ip(), now)).then_some(channel.peer)
    }

    /// The channel of a peer, where it has one.
    pub(super) fn channel_of(&self, peer: SocketAddr, now: Millis) -> Option<u16> {
        let channel = self.channels.iter().find(|known| known.peer == peer)?;
        (now < channel.expires).then_some(channel.number)
    }

    /// How many permissions and channels are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.permissions.len(), self.channels.len())
    }
}

/// RFC 8656 section 9.
const PERMISSION_LIFETIME: Millis = Millis::from_seconds(300);
/// RFC 8656 section 12.
const CHANNEL_LIFETIME: Millis = Millis::from_seconds(600);
