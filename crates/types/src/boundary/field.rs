//! The fields of a tunnel that a filter may name, with functions to read and set each.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use crate::client::Labels;
use crate::tunnel::{PropertyError, Tunnel, TunnelProperties};

/// Subject of a filter: a live tunnel, or the properties of a new one.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    tunnel: Option<&'a Tunnel>,
    properties: &'a TunnelProperties,
}

impl<'a> Subject<'a> {
    pub(super) fn live(tunnel: &'a Tunnel) -> Self {
        Self {
            tunnel: Some(tunnel),
            properties: &tunnel.properties,
        }
    }

    pub(super) fn new_tunnel(properties: &'a TunnelProperties) -> Self {
        Self {
            tunnel: None,
            properties,
        }
    }
}

/// Form of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// One of a few words.
    Word,
    Flag,
    Number,
    List,
    Map,
}

/// A field's value in one subject.
pub(super) enum FieldValue<'a> {
    Text(Option<Cow<'a, str>>),
    Flag(bool),
    Number(Option<u16>),
    List(Vec<Cow<'a, str>>),
    Map(&'a Labels),
}

macro_rules! fields {
    ($($variant:ident $name:literal $kind:ident $settable:literal)*) => {
        /// A field of the tunnel's JSON object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Field { $($variant),* }

        impl Field {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant),*];

            pub(super) const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            pub(super) const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind),* }
            }

            /// True if a client may set the field, so that a `create` filter may name it.
            pub(super) const fn is_settable(self) -> bool {
                match self { $(Self::$variant => $settable),* }
            }

            /// Returns the field with a JSON name, in either spelling with `compat`.
            pub(super) fn named(name: &str, compat: bool) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    "http_use_tls" => Some(Self::UpstreamTls),
                    "rstream_auth" if compat => Some(Self::SvcAuth),
                    _ => None,
                }
            }
        }
    };
}

fields! {
    Id "id" Text false
    ClientId "client_id" Text false
    UserId "user_id" Text false
    WorkspaceId "workspace_id" Text false
    ProjectId "project_id" Text false
    ClusterId "cluster_id" Text false
    Plan "plan" Text false
    Provider "provider" Text false
    Region "region" Text false
    Status "status" Word false
    CreationDate "creation_date" Text false
    Host "host" Text false
    Name "name" Text true
    Type "type" Word true
    Publish "publish" Flag true
    Protocol "protocol" Word true
    Labels "labels" Map true
    GeoIp "geo_ip" List true
    TrustedIps "trusted_ips" List true
    Hostname "hostname" Text true
    Port "port" Number true
    TlsMode "tls_mode" Word true
    TlsAlpns "tls_alpns" List true
    TlsCiphers "tls_ciphers" List true
    TlsMinVersion "tls_min_version" Word true
    MtlsAuth "mtls_auth" Flag true
    HttpVersion "http_version" Word true
    UpstreamTls "upstream_tls" Flag true
    DatagramGuaranteedDelivery "datagram_guaranteed_delivery" Flag true
    AllowCrossRegionRouting "allow_cross_region_routing" Flag true
    TokenAuth "token_auth" Flag true
    SvcAuth "svc_auth" Flag true
    ChallengeMode "challenge_mode" Flag true
    BasicAuth "basic_auth" Flag true
    Share "share" Flag true
    AllowedOrigins "allowed_origins" List true
    PassHeaders "pass_headers" List true
    Identity "identity" List true
    TimeToFirstByteSeconds "time_to_first_byte_seconds" Number true
}

impl Field {
    /// Reads the field. An absent flag has its default: true for `publish`, false for all others.
    #[expect(clippy::too_many_lines, reason = "a table of fields, one arm for each")]
    pub(super) fn read(self, subject: Subject<'_>) -> FieldValue<'_> {
        let properties = subject.properties;
        let owned = |read: fn(&Tunnel) -> Option<&str>| {
            FieldValue::Text(subject.tunnel.and_then(read).map(Cow::Borrowed))
        };
        let text = |text: Option<&'static str>| FieldValue::Text(text.map(Cow::Borrowed));
        let flag = |flag: Option<bool>| FieldValue::Flag(flag.unwrap_or(false));
        match self {
            Self::Id => owned(|tunnel| Some(tunnel.id.as_str())),
            Self::ClientId => owned(|tunnel| Some(tunnel.client_id.as_str())),
            Self::UserId => owned(|tunnel| tunnel.user_id.as_deref()),
            Self::WorkspaceId => owned(|tunnel| tunnel.workspace_id.as_deref()),
            Self::ProjectId => owned(|tunnel| tunnel.project_id.as_deref()),
            Self::ClusterId => owned(|tunnel| tunnel.cluster_id.as_deref()),
            Self::Plan => owned(|tunnel| tunnel.plan.as_deref()),
            Self::Provider => owned(|tunnel| tunnel.provider.as_deref()),
            Self::Region => owned(|tunnel| tunnel.region.as_deref()),
            Self::Host => owned(|tunnel| tunnel.host.as_deref()),
            Self::Status => text(subject.tunnel.map(|tunnel| tunnel.status.as_str())),
            Self::CreationDate => {
                let at = subject.tunnel.and_then(|tunnel| tunnel.creation_date);
                FieldValue::Text(at.map(|at| Cow::Owned(format!("{at:.3}"))))
            }
            Self::Name => FieldValue::Text(
                properties
                    .name
                    .as_ref()
                    .map(|name| Cow::Borrowed(name.as_str())),
            ),
            Self::Hostname => FieldValue::Text(
                properties
                    .hostname
                    .as_ref()
                    .map(|name| Cow::Borrowed(name.as_str())),
            ),
            Self::Type => text(
                properties
                    .tunnel_type
                    .map(crate::tunnel::TunnelType::as_str),
            ),
            Self::Protocol => text(properties.protocol.map(crate::tunnel::Protocol::as_str)),
            Self::TlsMode => text(properties.tls_mode.map(crate::tunnel::TlsMode::as_str)),
            Self::TlsMinVersion => text(
                properties
                    .tls_min_version
                    .map(crate::tunnel::TlsVersion::as_str),
            ),
            Self::HttpVersion => text(
                properties
                    .http_version
                    .map(crate::tunnel::HttpVersion::as_str),
            ),
            Self::Publish => FieldValue::Flag(properties.publish.unwrap_or(true)),
            Self::MtlsAuth => flag(properties.mtls_auth),
            Self::UpstreamTls => flag(properties.upstream_tls),
            Self::DatagramGuaranteedDelivery => flag(properties.datagram_guaranteed_delivery),
            Self::AllowCrossRegionRouting => flag(properties.allow_cross_region_routing),
            Self::TokenAuth => flag(properties.token_auth),
            Self::SvcAuth => flag(properties.svc_auth),
            Self::ChallengeMode => flag(properties.challenge_mode),
            Self::BasicAuth => flag(properties.basic_auth),
            Self::Share => flag(properties.share),
            Self::Port => FieldValue::Number(properties.port),
            Self::TimeToFirstByteSeconds => {
                FieldValue::Number(properties.time_to_first_byte_seconds)
            }
            Self::GeoIp => FieldValue::List(
                properties
                    .geo_ip
                    .iter()
                    .map(|entry| entry.as_str().into())
                    .collect(),
            ),
            Self::TrustedIps => FieldValue::List(
                properties
                    .trusted_ips
                    .iter()
                    .map(|entry| entry.to_string().into())
                    .collect(),
            ),
            Self::AllowedOrigins => FieldValue::List(
                properties
                    .allowed_origins
                    .iter()
                    .map(|entry| entry.as_str().into())
                    .collect(),
            ),
            Self::PassHeaders => FieldValue::List(
                properties
                    .pass_headers
                    .iter()
                    .map(|entry| entry.as_str().into())
                    .collect(),
            ),
            Self::Identity => FieldValue::List(
                properties
                    .identity
                    .iter()
                    .map(|entry| entry.to_string().into())
                    .collect(),
            ),
            Self::TlsAlpns => {
                FieldValue::List(properties.tls_alpns.iter().map(Into::into).collect())
            }
            Self::TlsCiphers => {
                FieldValue::List(properties.tls_ciphers.iter().map(Into::into).collect())
            }
            Self::Labels => FieldValue::Map(&properties.labels),
        }
    }

    /// Sets a text or word that the client left open.
    pub(super) fn set_text(
        self,
        properties: &mut TunnelProperties,
        text: &str,
    ) -> Result<(), PropertyError> {
        match self.slot(properties) {
            FieldSlot::Text(slot) => slot.fill(text).map_err(|error| self.invalid(error)),
            _ => Ok(()),
        }
    }

    /// Sets a flag that the client left open.
    pub(super) fn set_flag(self, properties: &mut TunnelProperties, flag: bool) {
        if let FieldSlot::Flag(slot) = self.slot(properties) {
            slot.get_or_insert(flag);
        }
    }

    /// Sets a number that the client left open.
    pub(super) fn set_number(self, properties: &mut TunnelProperties, number: u16) {
        if let FieldSlot::Number(slot) = self.slot(properties) {
            slot.get_or_insert(number);
        }
    }

    /// Sets a list that the client left open.
    pub(super) fn set_list(
        self,
        properties: &mut TunnelProperties,
        entries: &[String],
    ) -> Result<(), PropertyError> {
        match self.slot(properties) {
            FieldSlot::List(slot) => slot.fill(entries).map_err(|error| self.invalid(error)),
            _ => Ok(()),
        }
    }

    /// Returns the map of the field, if it is one.
    pub(super) fn map(self, properties: &mut TunnelProperties) -> Option<&mut Labels> {
        match self.slot(properties) {
            FieldSlot::Map(labels) => Some(labels),
            _ => None,
        }
    }

    /// The field's place in the properties. The match has no default arm, and a test compares the
    /// variants with [`Self::kind`], so a new field cannot be forgotten.
    fn slot(self, properties: &mut TunnelProperties) -> FieldSlot<'_> {
        match self {
            Self::Id
            | Self::ClientId
            | Self::UserId
            | Self::WorkspaceId
            | Self::ProjectId
            | Self::ClusterId
            | Self::Plan
            | Self::Provider
            | Self::Region
            | Self::Status
            | Self::CreationDate
            | Self::Host => FieldSlot::ReadOnly,
            Self::Name => FieldSlot::Text(&mut properties.name),
            Self::Hostname => FieldSlot::Text(&mut properties.hostname),
            Self::Type => FieldSlot::Text(&mut properties.tunnel_type),
            Self::Protocol => FieldSlot::Text(&mut properties.protocol),
            Self::TlsMode => FieldSlot::Text(&mut properties.tls_mode),
            Self::TlsMinVersion => FieldSlot::Text(&mut properties.tls_min_version),
            Self::HttpVersion => FieldSlot::Text(&mut properties.http_version),
            Self::Publish => FieldSlot::Flag(&mut properties.publish),
            Self::MtlsAuth => FieldSlot::Flag(&mut properties.mtls_auth),
            Self::UpstreamTls => FieldSlot::Flag(&mut properties.upstream_tls),
            Self::DatagramGuaranteedDelivery => {
                FieldSlot::Flag(&mut properties.datagram_guaranteed_delivery)
            }
            Self::AllowCrossRegionRouting => {
                FieldSlot::Flag(&mut properties.allow_cross_region_routing)
            }
            Self::TokenAuth => FieldSlot::Flag(&mut properties.token_auth),
            Self::SvcAuth => FieldSlot::Flag(&mut properties.svc_auth),
            Self::ChallengeMode => FieldSlot::Flag(&mut properties.challenge_mode),
            Self::BasicAuth => FieldSlot::Flag(&mut properties.basic_auth),
            Self::Share => FieldSlot::Flag(&mut properties.share),
            Self::Port => FieldSlot::Number(&mut properties.port),
            Self::TimeToFirstByteSeconds => {
                FieldSlot::Number(&mut properties.time_to_first_byte_seconds)
            }
            Self::GeoIp => FieldSlot::List(&mut properties.geo_ip),
            Self::TrustedIps => FieldSlot::List(&mut properties.trusted_ips),
            Self::TlsAlpns => FieldSlot::List(&mut properties.tls_alpns),
            Self::AllowedOrigins => FieldSlot::List(&mut properties.allowed_origins),
            Self::PassHeaders => FieldSlot::List(&mut properties.pass_headers),
            Self::Identity => FieldSlot::List(&mut properties.identity),
            Self::TlsCiphers => FieldSlot::List(&mut properties.tls_ciphers),
            Self::Labels => FieldSlot::Map(&mut properties.labels),
        }
    }

    fn invalid(self, message: String) -> PropertyError {
        PropertyError::new(self.as_str(), message)
    }

    /// Returns the only spelling of the value in this field, or `None` if the field has no such
    /// value.
    pub(super) fn canonical(self, text: &str) -> Option<String> {
        use crate::tunnel::{
            Country, HttpVersion, IdentityField, IpRange, Protocol, ProxyHeader, Status, TlsMode,
            TlsVersion, TunnelType, WebOrigin,
        };
        let word = |known: bool| known.then(|| text.to_owned());
        match self {
            Self::Hostname => Some(text.to_ascii_lowercase()),
            Self::GeoIp => text.parse::<Country>().ok().map(String::from),
            Self::TrustedIps => text.parse::<IpRange>().ok().map(|range| range.to_string()),
            Self::AllowedOrigins => text.parse::<WebOrigin>().ok().map(String::from),
            Self::PassHeaders => word(text.parse::<ProxyHeader>().is_ok()),
            Self::Identity => text.parse::<IdentityField>().ok().map(String::from),
            Self::Status => word(text.parse::<Status>().is_ok()),
            Self::Type => word(text.parse::<TunnelType>().is_ok()),
            Self::Protocol => word(text.parse::<Protocol>().is_ok()),
            Self::TlsMode => word(text.parse::<TlsMode>().is_ok()),
            Self::TlsMinVersion => word(text.parse::<TlsVersion>().is_ok()),
            Self::HttpVersion => word(text.parse::<HttpVersion>().is_ok()),
            // Any text, and fields whose values are not text.
            Self::Id
            | Self::ClientId
            | Self::UserId
            | Self::WorkspaceId
            | Self::ProjectId
            | Self::ClusterId
            | Self::Plan
            | Self::Provider
            | Self::Region
            | Self::CreationDate
            | Self::Host
            | Self::Name
            | Self::TlsAlpns
            | Self::TlsCiphers
            | Self::Publish
            | Self::Labels
            | Self::Port
            | Self::TimeToFirstByteSeconds
            | Self::MtlsAuth
            | Self::UpstreamTls
            | Self::DatagramGuaranteedDelivery
            | Self::AllowCrossRegionRouting
            | Self::TokenAuth
            | Self::SvcAuth
            | Self::ChallengeMode
            | Self::BasicAuth
            | Self::Share => Some(text.to_owned()),
        }
    }
}

/// Place of a field's value in the properties of a new tunnel.
enum FieldSlot<'p> {
    Text(&'p mut dyn TextSlot),
    Flag(&'p mut Option<bool>),
    Number(&'p mut Option<u16>),
    List(&'p mut dyn ListSlot),
    Map(&'p mut Labels),
    /// The engine sets the field.
    ReadOnly,
}

/// A value that is parsed from text.
trait TextSlot {
    /// Parses the text, unless the client has set a value.
    fn fill(&mut self, text: &str) -> Result<(), String>;
}

/// A list whose entries are parsed from text.
trait ListSlot {
    /// Parses the entries, unless the client has set any.
    fn fill(&mut self, entries: &[String]) -> Result<(), String>;
}

impl<T: FromStr<Err: Display>> TextSlot for Option<T> {
    fn fill(&mut self, text: &str) -> Result<(), String> {
        if self.is_none() {
            *self = Some(text.parse().map_err(|error: T::Err| error.to_string())?);
        }
        Ok(())
    }
}

impl<T: FromStr<Err: Display>> ListSlot for Vec<T> {
    fn fill(&mut self, entries: &[String]) -> Result<(), String> {
        if self.is_empty() {
            let parsed = entries.iter().map(|entry| entry.parse());
            *self = parsed
                .collect::<Result<_, _>>()
                .map_err(|error: T::Err| error.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_slot_of_its_kind() {
        for field in Field::ALL {
            let mut properties = TunnelProperties::default();
            let fits = match field.slot(&mut properties) {
                FieldSlot::Text(_) => matches!(field.kind(), Kind::Text | Kind::Word),
                FieldSlot::Flag(_) => field.kind() == Kind::Flag,
                FieldSlot::Number(_) => field.kind() == Kind::Number,
                FieldSlot::List(_) => field.kind() == Kind::List,
                FieldSlot::Map(_) => field.kind() == Kind::Map,
                FieldSlot::ReadOnly => !field.is_settable(),
            };
            assert!(fits, "{}", field.as_str());
            let is_read_only = matches!(field.slot(&mut properties), FieldSlot::ReadOnly);
            assert_eq!(is_read_only, !field.is_settable(), "{}", field.as_str());
        }
    }
}
