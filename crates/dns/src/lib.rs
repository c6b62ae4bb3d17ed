//! DNS for certificates: a responder for the names of challenges, and a client that changes records
//! of another server (RFC 2136 with TSIG).
//!
//! `zone` and `answer` decide without IO and without a clock: any bytes lead to no response or to one
//! of a bounded size. `responder` has the sockets, and `rate` the limits of their sources. `update`
//! and `key` are the client.

mod answer;
mod key;
mod name;
mod rate;
mod records;
mod responder;
mod update;
mod zone;

pub use self::answer::{QueryResult, Response, Transport};
pub use self::key::{KeyAlgorithm, KeyError, KeySource, TsigKey};
pub use self::name::NameError;
pub use self::records::{DnsRecords, RecordError};
pub use self::responder::{BindError, QUERIES_METRIC, Responder};
pub use self::update::{DnsUpdate, UpdateError};
pub use self::zone::{Zone, Zones};
