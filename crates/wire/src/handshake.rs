//! The first message: protocol version and extensions.

use crate::error::{Error, ErrorCode};
use crate::message::ClientDetails;

/// Our ALPN name of the agent protocol.
pub const ALPN_SVC: &[u8] = b"svc/1";

/// ALPN name of the agent protocol of the published clients. It is the same protocol.
pub const ALPN_RSTRM: &[u8] = b"rstrm/1";

/// The protocol version of this implementation.
pub const PROTOCOL_VERSION: &str = "1.4.5";

/// Standing data connections, see [`pool`](crate::pool).
pub const EXT_POOL: &str = "pool/1";

/// Lanes, many small exchanges on one connection, see [`lane`](crate::lane). It needs `pool/1`.
pub const EXT_LANE: &str = "lane/2";

/// Streams with consecutive HTTP exchanges: the agent reports which bytes reached the service. It
/// needs `pool/1`.
pub const EXT_EXCHANGE: &str = "exchange/1";

/// An engine that is being replaced asks the agent to move to the new process
/// ([`MoveReq`](crate::message::MoveReq)), and data connections name the process of their control
/// channel ([`process_protocol`]).
pub const EXT_MOVE: &str = "move/1";

/// The extensions that this version supports.
pub const EXTENSIONS: &[&str] = &[EXT_POOL, EXT_LANE, EXT_EXCHANGE, EXT_MOVE];

/// Start of the ALPN names that select a process of an engine.
const PROCESS_PREFIX: &str = "svc-process/";

/// Longest id of a process. It is part of every ClientHello of an agent.
const MAX_PROCESS_ID: usize = 32;

/// The ALPN name that selects a process of an engine while two of them share its listeners. An agent
/// offers it after the name of the protocol, and it is never chosen. `None` if the id is not valid:
/// 1 to 32 characters `0-9a-f`.
pub fn process_protocol(process: &str) -> Option<Vec<u8>> {
    is_process_id(process.as_bytes()).then(|| format!("{PROCESS_PREFIX}{process}").into_bytes())
}

/// The process that an ALPN name selects, if it selects one.
pub fn selected_process(protocol: &[u8]) -> Option<&str> {
    let id = protocol.strip_prefix(PROCESS_PREFIX.as_bytes())?;
    if !is_process_id(id) {
        return None;
    }
    std::str::from_utf8(id).ok()
}

fn is_process_id(id: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (1..=MAX_PROCESS_ID).contains(&id.len()) && id.iter().all(is_digit)
}

/// Checks the protocol version of a client.
///
/// # Errors
/// 2010 if there is none, 2020 if it cannot be parsed, 2030 if it has another major number.
pub fn check_version(details: &ClientDetails) -> Result<(), Error> {
    let Some(version) = &details.protocol_version else {
        return Err(Error::new(
            ErrorCode::ProtocolVersionMissing,
            "the hello has no protocol version",
        ));
    };
    let Some(major) = major(&version.value) else {
        return Err(Error::new(
            ErrorCode::ProtocolVersionInvalid,
            "the protocol version is not of the form 1.2.3",
        ));
    };
    if Some(major) == self::major(PROTOCOL_VERSION) {
        Ok(())
    } else {
        Err(Error::new(
            ErrorCode::ProtocolVersionIncompatible,
            format!("protocol version {major} is not supported, {PROTOCOL_VERSION} is"),
        ))
    }
}

/// The extensions in use: those that both ends support, in our order, each once. The engine
/// responds with this list, and the agent uses the list in the response.
pub fn agreed_extensions(peer: &[String]) -> Vec<&'static str> {
    let named = |name: &str| peer.iter().any(|theirs| theirs == name);
    EXTENSIONS
        .iter()
        .copied()
        .filter(|ours| named(ours) && (matches!(*ours, EXT_POOL | EXT_MOVE) || named(EXT_POOL)))
        .collect()
}

/// The major number of `1.4.5`; three decimal numbers without a sign, nothing else.
fn major(version: &str) -> Option<u32> {
    let mut parts = version.split('.').map(|part| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if digits {
            part.parse::<u32>().ok()
        } else {
            None
        }
    });
    let major = parts.next()??;
    parts.next()??;
    parts.next()??;
    parts.next().is_none().then_some(major)
}

#[cfg(test)]
mod tests {
    use super::{
        EXT_EXCHANGE, EXT_LANE, EXT_MOVE, EXT_POOL, PROTOCOL_VERSION, agreed_extensions,
        check_version, process_protocol, selected_process,
    };
    use crate::error::ErrorCode;
    use crate::message::ClientDetails;

    fn check(version: Option<&str>) -> Option<ErrorCode> {
        let details = ClientDetails {
            protocol_version: version.map(Into::into),
            ..ClientDetails::default()
        };
        check_version(&details).err().map(|error| error.kind())
    }

    #[test]
    fn our_major_version_is_accepted() {
        for version in [PROTOCOL_VERSION, "1.0.0", "1.3.0", "1.4.3", "1.999.0"] {
            assert_eq!(check(Some(version)), None, "{version}");
        }
    }

    #[test]
    fn a_missing_version_is_2010() {
        assert_eq!(check(None), Some(ErrorCode::ProtocolVersionMissing));
    }

    #[test]
    fn an_unreadable_version_is_2020() {
        for version in [
            "",
            "1",
            "1.4",
            "1.4.5.6",
            "v1.4.5",
            "1.4.x",
            "1..5",
            "+1.4.5",
            "1.4.5 ",
            "1.4.99999999999",
        ] {
            assert_eq!(
                check(Some(version)),
                Some(ErrorCode::ProtocolVersionInvalid),
                "{version}"
            );
        }
    }

    #[test]
    fn another_major_version_is_2030() {
        for version in ["0.4.5", "2.0.0", "11.4.5"] {
            let expected = Some(ErrorCode::ProtocolVersionIncompatible);
            assert_eq!(check(Some(version)), expected, "{version}");
        }
    }

    #[test]
    fn an_extension_is_used_if_both_ends_name_it() {
        let named = |names: &[&str]| {
            agreed_extensions(
                &names
                    .iter()
                    .map(|&name| name.to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(named(&[]), Vec::<&str>::new());
        assert_eq!(named(&["later/9", EXT_POOL, EXT_POOL]), [EXT_POOL]);
        assert_eq!(named(&[EXT_LANE, EXT_POOL]), [EXT_POOL, EXT_LANE]);
        assert_eq!(named(&[EXT_EXCHANGE, EXT_POOL]), [EXT_POOL, EXT_EXCHANGE]);
        assert_eq!(named(&[EXT_EXCHANGE]), Vec::<&str>::new());
        assert_eq!(named(&[EXT_MOVE]), [EXT_MOVE]);
        // Other versions of lanes are not supported.
        assert_eq!(named(&["lane/1", EXT_POOL]), [EXT_POOL]);
        // A lane is made from a standing connection.
        assert_eq!(named(&[EXT_LANE, "pool/2"]), Vec::<&str>::new());
    }

    #[test]
    fn a_process_is_selected_by_a_protocol_name() {
        let name = process_protocol("0123456789abcdef").unwrap();
        assert_eq!(name, b"svc-process/0123456789abcdef");
        assert_eq!(selected_process(&name), Some("0123456789abcdef"));
        for id in ["", "0123456789ABCDEF", "a b", &"0".repeat(33)] {
            assert_eq!(process_protocol(id), None, "{id}");
            assert_eq!(
                selected_process(format!("svc-process/{id}").as_bytes()),
                None
            );
        }
        assert_eq!(selected_process(b"svc/1"), None);
        assert_eq!(selected_process(b"svc-process/\xff"), None);
    }
}
