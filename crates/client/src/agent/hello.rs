//! The first messages of each kind of connection, and their responses.

use wire::{
    ErrorCode, Kind,
    handshake::{EXT_EXCHANGE, EXT_LANE, EXT_MOVE, EXT_POOL, PROTOCOL_VERSION},
    message::{
        ClientDetails, ControlChannelLiveness, OpenControlChannelReq, ProxyReq, Secret, StreamReq,
    },
};

use crate::{Config, ConnectError, Refusal, RefusalKind, Token};

/// Opens a control channel.
pub(crate) fn control(config: &Config, token: &Token, liveness: ControlChannelLiveness) -> Kind {
    let mut details = client_details(config);
    details.labels.clone_from(&config.labels);
    if config.standing {
        details.extensions.push(EXT_POOL.to_owned());
        if config.lanes {
            details.extensions.push(EXT_LANE.to_owned());
        }
        details.extensions.push(EXT_EXCHANGE.to_owned());
    }
    details.extensions.push(EXT_MOVE.to_owned());
    details.token = Some(token.expose().into());
    Kind::OpenControlChannelReq(OpenControlChannelReq {
        client_details: Some(details),
        liveness: Some(liveness),
    })
}

/// Opens a data connection: for one stream, or (with an empty id) a standing one.
///
/// The agent waits for no response. An engine that does not accept the secret closes the
/// connection, and an agent could not react in another way.
pub(crate) fn data(config: &Config, stream_id: String, secret: Secret) -> Kind {
    let mut details = client_details(config);
    details.token = Some(secret);
    Kind::ProxyReq(ProxyReq {
        client_details: Some(details),
        stream_id,
        zero_rtt: Some(true.into()),
    })
}

/// Dials a private tunnel.
pub(crate) fn dial(config: &Config, token: &Token, id_or_name: &str, zero_rtt: bool) -> Kind {
    let mut details = client_details(config);
    details.token = Some(token.expose().into());
    Kind::StreamReq(StreamReq {
        client_details: Some(details),
        tunnel_id_name: id_or_name.to_owned(),
        zero_rtt: Some(zero_rtt.into()),
        datagram_channel: None,
    })
}

/// Converts an error of the engine into an error for the caller.
pub(crate) fn refused(error: &wire::Error) -> ConnectError {
    let kind = match error.kind() {
        ErrorCode::InvalidRequest if is_conflict(error.text()) => RefusalKind::Conflict,
        ErrorCode::Unauthorized => RefusalKind::Unauthorized,
        ErrorCode::InvalidRequest
        | ErrorCode::ProtocolVersionMissing
        | ErrorCode::ProtocolVersionInvalid
        | ErrorCode::ProtocolVersionIncompatible
        | ErrorCode::InvalidStream => RefusalKind::Invalid,
        ErrorCode::TunnelNotFound => RefusalKind::NotFound,
        ErrorCode::FeatureNotAvailable => RefusalKind::NotAvailable,
        ErrorCode::ServiceUnavailable
        | ErrorCode::CapacityExhausted
        | ErrorCode::Internal
        | ErrorCode::Unspecified => return ConnectError::Unavailable(error.to_string()),
    };
    Refusal::new(kind, sentence(error)).into()
}

/// True if a name or host name is already in use. The protocol has no code for it, and 2000 only
/// states that the request is invalid, so the engine's message has to be checked.
fn is_conflict(sentence: &str) -> bool {
    let sentence = sentence.trim_end_matches('.');
    sentence.ends_with(" is taken") || sentence.ends_with(" already")
}

fn client_details(config: &Config) -> ClientDetails {
    let ours = &config.details;
    ClientDetails {
        agent: Some(ours.agent.as_str().into()),
        channel: Some(ours.channel.as_str().into()),
        version: Some(ours.version.as_str().into()),
        os: Some(ours.os.as_str().into()),
        arch: Some(ours.arch.as_str().into()),
        protocol_version: Some(PROTOCOL_VERSION.into()),
        ..ClientDetails::default()
    }
}

fn sentence(error: &wire::Error) -> String {
    match error.text() {
        "" => error.to_string(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(error: &wire::Error) -> Option<RefusalKind> {
        refused(error).refusal().map(|refusal| refusal.kind)
    }

    #[test]
    fn only_a_name_in_use_is_a_conflict() {
        let invalid = |text: &str| kind(&wire::Error::invalid_request(text));
        assert_eq!(
            invalid("the tunnel name is taken"),
            Some(RefusalKind::Conflict)
        );
        assert_eq!(
            invalid("the hostname is taken"),
            Some(RefusalKind::Conflict)
        );
        assert_eq!(
            invalid("this client has the name or hostname already"),
            Some(RefusalKind::Conflict)
        );
        assert_eq!(invalid("name: too long"), Some(RefusalKind::Invalid));
    }

    #[test]
    fn transient_errors_are_not_refusals() {
        for error in [
            wire::Error::service_unavailable("stopping"),
            wire::Error::capacity_exhausted("full"),
            wire::Error::internal("a defect"),
        ] {
            assert!(refused(&error).is_transient(), "{error}");
        }
    }
}
