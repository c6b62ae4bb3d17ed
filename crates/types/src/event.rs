//! Events of the live stream: the envelope and its types.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::id::EventId;

/// One event of the live stream, as it is sent in a text frame or a `data:` line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Id; also the idempotency key of a webhook delivery.
    #[schema(value_type = String, example = "evt_01h455vb4pex5vsknk084sn02q")]
    pub id: EventId,
    /// Type of the event.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Time of the event.
    #[serde(with = "crate::timestamp")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// User that the object belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user_id: Option<String>,
    /// Workspace that the object belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub workspace_id: Option<String>,
    /// Project that the object belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub project_id: Option<String>,
    /// Cluster that serves the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cluster_id: Option<String>,
    /// Depends on the type: for `state.initial` the snapshot; for clients and tunnels the object
    /// after the change (before it, if it was deleted), with the fields that the watcher's boundary
    /// allows; for `webtty` events the object of the Engine API.
    pub object: Value,
}

impl Event {
    /// Creates an event about one object. Set the owner in the public fields.
    pub fn new(id: EventId, event_type: EventType, created_at: Timestamp, object: Value) -> Self {
        Self {
            id,
            event_type,
            created_at,
            user_id: None,
            workspace_id: None,
            project_id: None,
            cluster_id: None,
            object,
        }
    }

    /// The first event of every stream (EN-3): the objects that match the watcher's filters at
    /// `at`.
    pub fn snapshot(id: EventId, at: Timestamp, clients: Vec<Value>, tunnels: Vec<Value>) -> Self {
        let object = [
            ("snapshot_at".to_owned(), Value::String(format!("{at:.3}"))),
            ("clients".to_owned(), Value::Array(clients)),
            ("tunnels".to_owned(), Value::Array(tunnels)),
        ];
        let object = Value::Object(object.into_iter().collect());
        Self::new(id, EventType::StateInitial, at, object)
    }

    /// Returns the event as one line of JSON.
    pub fn to_line(&self) -> String {
        // Values with string keys always serialise, and serde_json writes no line breaks.
        serde_json::to_string(self).unwrap_or_default()
    }
}

macro_rules! event_types {
    ($($(#[$doc:meta])* $variant:ident = $word:literal)+) => {
        // The public SDKs close a stream on an unknown type. This list may therefore grow only
        // together with a request parameter that enables the new types.
        /// Type of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum EventType {
            $($(#[$doc])* #[serde(rename = $word)] $variant),+
        }

        impl EventType {
            /// Every type.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        crate::words::schema!(EventType, "What happened.", [$($word),+]);

        impl FromStr for EventType {
            type Err = UnknownEventType;

            fn from_str(given: &str) -> Result<Self, UnknownEventType> {
                match given {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownEventType),
                }
            }
        }
    };
}

event_types! {
    /// The filtered snapshot that opens a stream.
    StateInitial = "state.initial"
    /// A client connected.
    ClientCreated = "client.created"
    /// A client changed.
    ClientUpdated = "client.updated"
    /// A client disconnected.
    ClientDeleted = "client.deleted"
    /// A tunnel was created.
    TunnelCreated = "tunnel.created"
    /// A tunnel changed.
    TunnelUpdated = "tunnel.updated"
    /// A tunnel was deleted.
    TunnelDeleted = "tunnel.deleted"
    /// A custom domain was added to a project. The platform alone reports domains.
    DomainCreated = "domain.created"
    /// The records of a domain were found.
    DomainVerified = "domain.verified"
    /// The records of a verified domain are missing.
    DomainWarned = "domain.warned"
    /// The records have been missing for days, and the domain is not served any more.
    DomainSuspended = "domain.suspended"
    /// The project no longer holds the domain, and only this project can claim it for a while.
    DomainReleased = "domain.released"
    /// A domain was removed from its project.
    DomainDeleted = "domain.deleted"
    /// A project uploaded a certificate of its own for a domain.
    DomainCertificateUploaded = "domain.certificate_uploaded"
    /// The uploaded certificate of a domain was removed.
    DomainCertificateRemoved = "domain.certificate_removed"
    /// A managed terminal session started.
    WebttySessionCreated = "webtty.session.created"
    /// The status or the controller of a session changed.
    WebttySessionUpdated = "webtty.session.updated"
    /// A session ended.
    WebttySessionClosed = "webtty.session.closed"
    /// A participant's stream is connected.
    WebttyParticipantAttached = "webtty.participant.attached"
    /// A participant left.
    WebttyParticipantDetached = "webtty.participant.detached"
    /// A participant requested control.
    WebttyControlRequestCreated = "webtty.control_request.created"
    /// A request for control has another status.
    WebttyControlRequestResolved = "webtty.control_request.resolved"
}

impl EventType {
    /// True for events about managed terminals. They are sent only to watchers that request them.
    pub const fn is_webtty(self) -> bool {
        matches!(
            self,
            Self::WebttySessionCreated
                | Self::WebttySessionUpdated
                | Self::WebttySessionClosed
                | Self::WebttyParticipantAttached
                | Self::WebttyParticipantDetached
                | Self::WebttyControlRequestCreated
                | Self::WebttyControlRequestResolved
        )
    }

    /// True for events about custom domains. They are stored and delivered by the platform, and never
    /// sent by an engine.
    pub const fn is_domain(self) -> bool {
        matches!(
            self,
            Self::DomainCreated
                | Self::DomainVerified
                | Self::DomainWarned
                | Self::DomainSuspended
                | Self::DomainReleased
                | Self::DomainDeleted
                | Self::DomainCertificateUploaded
                | Self::DomainCertificateRemoved
        )
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An unknown event type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown event type")]
pub struct UnknownEventType;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    /// EN-3: the first event is the snapshot.
    #[test]
    fn en_3_snapshot_is_state_initial() {
        let event = Event::snapshot(
            EventId::new(1, [1; 10]),
            at(),
            vec![json!({"id": "cli_1"})],
            vec![],
        );
        insta::assert_json_snapshot!("snapshot", event);
    }

    #[test]
    fn an_event_is_one_line_and_reads_back() {
        let object = json!({"id": "tun_1", "name": "a\nb"});
        let mut event = Event::new(
            EventId::new(1, [1; 10]),
            EventType::TunnelUpdated,
            at(),
            object,
        );
        event.project_id = Some("default".to_owned());
        let line = event.to_line();
        insta::assert_snapshot!("line", line);
        assert_eq!(line.lines().count(), 1);
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn types_round_trip() {
        for event_type in EventType::ALL {
            assert_eq!(event_type.to_string().parse(), Ok(*event_type));
        }
        assert_eq!("stream.summary".parse::<EventType>(), Err(UnknownEventType));
    }
}
