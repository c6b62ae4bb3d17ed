//! Conversion of tunnel properties between the wire and the checked values of `types`.
//!
//! On the wire every property is a string or a list of strings. Here each becomes its checked type,
//! or an error with the name of the field in JSON. Combinations of properties are checked later, by
//! [`types::tunnel::TunnelProperties::resolve`].

use std::str::FromStr;

use jiff::Timestamp;
use types::id::TunnelId;
use types::tunnel::{PropertyError, Tunnel, TunnelProperties};

use crate::error::Error;
use crate::message::{self, BoolValue, StringValue};

/// The properties that a client requests (engine).
///
/// The engine sets `id`, `creation_date` and `host`; a client that sends the values of an earlier
/// response is not refused for that. The entries of `basic_auth` are read separately.
///
/// # Errors
/// The first invalid field.
pub fn requested(wire: &message::TunnelProperties) -> Result<TunnelProperties, PropertyError> {
    if wire.mtls_cacert_pem.is_some() {
        // The field would restrict access, so it must not be ignored silently.
        return Err(PropertyError::new(
            "mtls_cacert_pem",
            "no longer available; certificates are matched to credentials",
        ));
    }
    Ok(TunnelProperties {
        name: parse_value("name", wire.name.as_ref())?,
        tunnel_type: parse_value("type", wire.r#type.as_ref())?,
        publish: flag(wire.publish),
        protocol: parse_value("protocol", wire.protocol.as_ref())?,
        labels: wire.labels.clone(),
        geo_ip: parse_list("geo_ip", &wire.geoip)?,
        trusted_ips: parse_list("trusted_ips", &wire.trusted_ips)?,
        hostname: parse_value("hostname", wire.hostname.as_ref())?,
        port: port(wire)?,
        tls_mode: parse_value("tls_mode", wire.tls_mode.as_ref())?,
        tls_alpns: wire.tls_alpns.clone(),
        tls_ciphers: wire.tls_ciphers.clone(),
        tls_min_version: parse_value("tls_min_version", wire.tls_min_version.as_ref())?,
        mtls_auth: flag(wire.mtls_auth),
        http_version: parse_value("http_version", wire.http_version.as_ref())?,
        http_use_tls: flag(wire.http_use_tls),
        upstream_tls: flag(wire.upstream_tls),
        datagram_guaranteed_delivery: flag(wire.datagram_guaranteed_delivery),
        allow_cross_region_routing: flag(wire.allow_cross_region_routing),
        token_auth: flag(wire.token_auth),
        svc_auth: flag(wire.svc_auth),
        challenge_mode: flag(wire.challenge_mode),
        basic_auth: (!wire.basic_auth.is_empty()).then_some(true),
        share: flag(wire.share),
        allowed_origins: parse_list("allowed_origins", &wire.allowed_origins)?,
        pass_headers: parse_list("pass_headers", &wire.pass_headers)?,
        identity: parse_list("identity", &wire.identity)?,
        time_to_first_byte_seconds: time_to_first_byte(wire)?,
    })
}

/// The properties of a request (agent).
pub fn request(properties: &TunnelProperties) -> message::TunnelProperties {
    message::TunnelProperties {
        name: text(properties.name.as_ref()),
        r#type: text(properties.tunnel_type.as_ref()),
        publish: properties.publish.map(Into::into),
        protocol: text(properties.protocol.as_ref()),
        labels: properties.labels.clone(),
        geoip: properties.geo_ip.iter().map(ToString::to_string).collect(),
        trusted_ips: properties
            .trusted_ips
            .iter()
            .map(ToString::to_string)
            .collect(),
        tls_mode: text(properties.tls_mode.as_ref()),
        tls_alpns: properties.tls_alpns.clone(),
        tls_min_version: text(properties.tls_min_version.as_ref()),
        tls_ciphers: properties.tls_ciphers.clone(),
        mtls_auth: properties.mtls_auth.map(Into::into),
        http_version: text(properties.http_version.as_ref()),
        http_use_tls: properties.http_use_tls.map(Into::into),
        token_auth: properties.token_auth.map(Into::into),
        svc_auth: properties.svc_auth.map(Into::into),
        challenge_mode: properties.challenge_mode.map(Into::into),
        basic_auth: basic_auth_users(properties.basic_auth),
        share: properties.share.map(Into::into),
        allowed_origins: properties
            .allowed_origins
            .iter()
            .map(ToString::to_string)
            .collect(),
        pass_headers: properties
            .pass_headers
            .iter()
            .map(ToString::to_string)
            .collect(),
        identity: properties
            .identity
            .iter()
            .map(ToString::to_string)
            .collect(),
        time_to_first_byte_seconds: properties
            .time_to_first_byte_seconds
            .map(|seconds| u32::from(seconds).into()),
        hostname: text(properties.hostname.as_ref()),
        port: properties.port.map(|port| u32::from(port).into()),
        upstream_tls: properties.upstream_tls.map(Into::into),
        datagram_guaranteed_delivery: properties.datagram_guaranteed_delivery.map(Into::into),
        allow_cross_region_routing: properties.allow_cross_region_routing.map(Into::into),
        ..message::TunnelProperties::default()
    }
}

/// The properties of an opened tunnel, for the response (engine).
pub fn opened(tunnel: &Tunnel) -> message::TunnelProperties {
    message::TunnelProperties {
        id: Some(tunnel.id.to_string().into()),
        creation_date: tunnel.creation_date.map(|at| message::Timestamp {
            seconds: at.as_second(),
            nanos: at.subsec_nanosecond(),
        }),
        host: tunnel.host.clone().map(Into::into),
        ..request(&tunnel.properties)
    }
}

/// An opened tunnel in the response of an engine (agent).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedTunnel {
    /// The id that the engine assigned.
    pub id: TunnelId,
    /// Time at which it was opened, by the engine's clock.
    pub creation_date: Option<Timestamp>,
    /// Public address, `host` or `host:port`.
    pub host: Option<String>,
    /// The effective properties.
    pub properties: TunnelProperties,
}

impl OpenedTunnel {
    /// Parses the response of an engine.
    ///
    /// # Errors
    /// The first invalid field; a missing id is an error as well.
    pub fn parse(wire: &message::TunnelProperties) -> Result<Self, PropertyError> {
        let creation_date = wire
            .creation_date
            .map(|at| Timestamp::new(at.seconds, at.nanos));
        Ok(Self {
            id: parse_value("id", wire.id.as_ref())?
                .ok_or_else(|| PropertyError::new("id", "missing in the engine's answer"))?,
            creation_date: creation_date
                .transpose()
                .map_err(|_| PropertyError::new("creation_date", "not a point in time"))?,
            host: wire.host.as_ref().map(|host| host.value.clone()),
            properties: requested(wire)?,
        })
    }
}

impl From<PropertyError> for Error {
    /// The error for the client. For options outside its edition the engine responds with
    /// [`Error::feature_not_available`] instead (EN-11).
    fn from(error: PropertyError) -> Self {
        Self::invalid_request(error.to_string())
    }
}

fn parse_value<T: FromStr<Err: ToString>>(
    field: &str,
    value: Option<&StringValue>,
) -> Result<Option<T>, PropertyError> {
    let parse = |value: &StringValue| value.value.parse();
    value
        .map(parse)
        .transpose()
        .map_err(|error: T::Err| PropertyError::new(field, error.to_string()))
}

fn parse_list<T: FromStr<Err: ToString>>(
    field: &str,
    values: &[String],
) -> Result<Vec<T>, PropertyError> {
    let parse = |(place, value): (usize, &String)| {
        value.parse().map_err(|error: T::Err| {
            PropertyError::new(format!("{field}.{place}"), error.to_string())
        })
    };
    values.iter().enumerate().map(parse).collect()
}

/// An entry without a name and a hash: the link passwords themselves are not properties.
fn basic_auth_users(basic_auth: Option<bool>) -> Vec<message::BasicAuthUser> {
    let is_set = basic_auth == Some(true);
    is_set
        .then(message::BasicAuthUser::default)
        .into_iter()
        .collect()
}

fn port(wire: &message::TunnelProperties) -> Result<Option<u16>, PropertyError> {
    match wire.port.map(|port| u16::try_from(port.value)) {
        None => Ok(None),
        Some(Ok(port @ 1..)) => Ok(Some(port)),
        Some(_) => Err(PropertyError::new("port", "a port is 1 to 65535")),
    }
}

fn time_to_first_byte(wire: &message::TunnelProperties) -> Result<Option<u16>, PropertyError> {
    let seconds = wire.time_to_first_byte_seconds;
    let seconds = seconds.map(|seconds| u16::try_from(seconds.value));
    seconds.transpose().map_err(|_| {
        let longest = types::tunnel::MAX_TIME_TO_FIRST_BYTE_SECONDS;
        let message = format!("it is 1 to {longest} seconds");
        PropertyError::new("time_to_first_byte_seconds", message)
    })
}

fn flag(value: Option<BoolValue>) -> Option<bool> {
    value.map(|value| value.value)
}

fn text(value: Option<&impl ToString>) -> Option<StringValue> {
    value.map(|value| value.to_string().into())
}
