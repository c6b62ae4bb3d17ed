//! The ways to publish and remove TXT records.

use std::net::SocketAddr;
use std::time::Duration;

use dns::{DnsUpdate, Zones};

use super::program::{DnsProgram, DnsRecord};
use crate::error::OrderError;

/// The way to publish TXT records.
#[derive(Clone, Debug)]
pub enum DnsProvider {
    /// The operator's program.
    Program(DnsProgram),
    /// Updates of a name server (RFC 2136).
    Update {
        /// The server and the key.
        update: DnsUpdate,
        /// Delay between the last record and the request for its validation.
        propagation: Duration,
    },
    /// This process answers for the names.
    Responder(ResponderSettings),
}

/// Settings of the responder for DNS.
#[derive(Clone, Debug)]
pub struct ResponderSettings {
    /// Its addresses, each for UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// The answered names, with the records that orders change.
    pub zones: Zones,
    /// The zone to which CNAME records of the challenges point; `None` if the challenges are zones
    /// of their own.
    pub alias_zone: Option<String>,
}

impl DnsProvider {
    /// Publishes a record. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// It is not published, or that is not certain.
    pub(crate) async fn present(&self, record: &DnsRecord, now: i64) -> Result<(), OrderError> {
        match self {
            Self::Program(program) => program.present(record).await,
            Self::Update { update, .. } => {
                let added = update.add(&record.name, &record.value, now).await;
                added.map_err(OrderError::Update)
            }
            Self::Responder(settings) => {
                let records = settings.zones.records();
                let added = records.add(&settings.published_name(&record.name), &record.value);
                added.map_err(OrderError::internal)
            }
        }
    }

    /// Removes a record. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// It may still exist.
    pub(crate) async fn clean_up(&self, record: &DnsRecord, now: i64) -> Result<(), OrderError> {
        match self {
            Self::Program(program) => program.clean_up(record).await,
            Self::Update { update, .. } => {
                let removed = update.remove(&record.name, &record.value, now).await;
                removed.map_err(OrderError::Update)
            }
            Self::Responder(settings) => {
                let records = settings.zones.records();
                records.remove(&settings.published_name(&record.name), &record.value);
                Ok(())
            }
        }
    }

    /// Sets the URL of the account, for CAA records of the responder.
    pub(crate) fn set_account(&self, url: &str) {
        if let Self::Responder(settings) = self {
            settings.zones.set_account(url);
        }
    }

    /// Delay between the last record and the request for its validation.
    pub(crate) fn propagation(&self) -> Duration {
        match self {
            Self::Program(program) => program.propagation,
            Self::Update { propagation, .. } => *propagation,
            Self::Responder(_) => Duration::ZERO,
        }
    }
}

impl ResponderSettings {
    /// The name under which the record of a challenge is published: its own, or the one to which its
    /// CNAME record points.
    pub fn published_name(&self, challenge: &str) -> String {
        let alias = self.alias_zone.as_ref();
        let Some(zone) = alias.filter(|_| !self.zones.contain(challenge)) else {
            return challenge.to_owned();
        };
        let base = challenge.strip_prefix(CHALLENGE_PREFIX);
        format!("{}.{zone}", base.unwrap_or(challenge))
    }
}

/// First label of a challenge's name (RFC 8555 section 8.4).
const CHALLENGE_PREFIX: &str = "_acme-challenge.";

/// The name of the challenge for a name of a certificate, without its wildcard.
pub fn challenge_name(name: &str) -> String {
    format!(
        "{CHALLENGE_PREFIX}{}",
        name.strip_prefix("*.").unwrap_or(name)
    )
}

#[cfg(test)]
mod tests {
    use dns::{Transport, Zone};

    use super::*;

    const CHALLENGE: &str = "_acme-challenge.t.h.example";

    fn responder(apex: &str, alias_zone: Option<&str>) -> ResponderSettings {
        let zones = vec![Zone::of_challenges(apex).unwrap()];
        ResponderSettings {
            listen: Vec::new(),
            zones: Zones::new("h.example", zones).unwrap(),
            alias_zone: alias_zone.map(str::to_owned),
        }
    }

    /// A query for a TXT record.
    fn query(name: &str) -> Vec<u8> {
        let mut bytes = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(label.as_bytes());
        }
        bytes.extend([0, 0, 16, 0, 1]);
        bytes
    }

    #[tokio::test]
    async fn the_responder_has_a_record_until_it_is_removed() {
        let alias = "t.h.example.acme.example.net";
        for (settings, published) in [
            (responder(CHALLENGE, None), CHALLENGE),
            (
                responder("acme.example.net", Some("acme.example.net")),
                alias,
            ),
        ] {
            let zones = settings.zones.clone();
            let answers = |value: &str| {
                let response = zones.respond(&query(published), Transport::Tcp).unwrap();
                let mut windows = response.bytes.windows(value.len());
                windows.any(|window| window == value.as_bytes())
            };
            let provider = DnsProvider::Responder(settings);
            let record = DnsRecord {
                name: challenge_name("*.t.h.example"),
                value: "digest".to_owned(),
            };
            provider.present(&record, 0).await.unwrap();
            assert!(answers("digest"), "{published}");
            provider.clean_up(&record, 0).await.unwrap();
            assert!(!answers("digest"), "{published}");
        }
    }

    #[test]
    fn a_name_in_the_zone_is_published_as_it_is() {
        let alias = responder("acme.example.net", Some("acme.example.net"));
        let published = alias.published_name("01h455vb4p.acme.example.net");
        assert_eq!(published, "01h455vb4p.acme.example.net");
    }

    #[test]
    fn a_wildcard_is_validated_at_the_name_without_it() {
        assert_eq!(challenge_name("h.example"), "_acme-challenge.h.example");
        assert_eq!(challenge_name("*.t.h.example"), CHALLENGE);
    }
}
