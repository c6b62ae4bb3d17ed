//! Times on the wire, for serde's attribute `with`: RFC 3339 in UTC with milliseconds.
//!
//! Always three fractional digits, because the parsers of some SDKs accept nothing else.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{at:.3}"))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Timestamp, D::Error> {
    Timestamp::deserialize(deserializer)
}

pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    #[expect(clippy::ref_option, reason = "the signature that serde requires")]
    pub(crate) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Option::deserialize(deserializer)
    }
}
