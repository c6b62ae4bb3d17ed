//! The first frame of a connection between two engines.

/// The version of the protocol. Engines with different versions do not connect.
pub const VERSION: u32 = 1;

/// Largest length of the ids of a cluster and of an engine: that of a label of a host name, because
/// the names in certificates contain them.
pub const MAX_LABEL: usize = 63;

/// Characters of the id of a process.
const INSTANCE_LEN: usize = 32;

/// Payload of `HELLO`, as it is on the wire. [`PeerIdentity::decode`] checks it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PeerHello {
    /// [`VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the cluster.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Id of the engine, which its certificate must contain.
    #[prost(string, tag = "3")]
    pub engine: String,
    /// Id of the process: 32 hexadecimal digits, drawn at its start.
    #[prost(string, tag = "4")]
    pub instance: String,
    /// A [`ConnectionPurpose`].
    #[prost(enumeration = "ConnectionPurpose", tag = "5")]
    pub purpose: i32,
}

/// The use of a connection between engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ConnectionPurpose {
    /// Not set.
    Unspecified = 0,
    /// Frames of this module.
    Control = 1,
    /// A standing connection, which may become a lane.
    Data = 2,
}

/// A checked hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Id of the cluster.
    pub cluster: String,
    /// Id of the engine.
    pub engine: String,
    /// Id of the process.
    pub instance: String,
    /// The use of the connection.
    pub purpose: ConnectionPurpose,
}

/// Reasons why a hello is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// It is not a [`PeerHello`].
    #[error("the hello cannot be read")]
    Message(#[from] prost::DecodeError),
    /// Another version of the protocol.
    #[error("version {0} of the protocol between engines is not supported, only version {VERSION}")]
    Version(u32),
    /// An id that no engine has.
    #[error("the {0} of the hello is invalid")]
    Field(&'static str),
}

impl PeerIdentity {
    /// The hello on the wire.
    pub fn hello(&self) -> PeerHello {
        PeerHello {
            version: VERSION,
            cluster: self.cluster.clone(),
            engine: self.engine.clone(),
            instance: self.instance.clone(),
            purpose: self.purpose as i32,
        }
    }

    /// Checks the payload of a `HELLO` frame.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn decode(payload: &[u8]) -> Result<Self, HelloError> {
        let hello = <PeerHello as prost::Message>::decode(payload)?;
        if hello.version != VERSION {
            return Err(HelloError::Version(hello.version));
        }
        let purpose = hello.purpose();
        let is_instance = hello.instance.len() == INSTANCE_LEN
            && hello
                .instance
                .bytes()
                .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if !is_label(&hello.cluster) {
            Err(HelloError::Field("cluster"))
        } else if !is_label(&hello.engine) {
            Err(HelloError::Field("engine"))
        } else if !is_instance {
            Err(HelloError::Field("instance"))
        } else if purpose == ConnectionPurpose::Unspecified {
            Err(HelloError::Field("purpose"))
        } else {
            Ok(Self {
                cluster: hello.cluster,
                engine: hello.engine,
                instance: hello.instance,
                purpose,
            })
        }
    }
}

/// Returns true if this can be the id of a cluster or of an engine: a label of a host name in lower
/// case.
pub fn is_label(id: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=MAX_LABEL).contains(&id.len())
        && id.bytes().all(is_inner)
        && !id.starts_with('-')
        && !id.ends_with('-')
}
