//! Who the two ends are: the published handshake, and where ours rides in it.

use std::fmt;

use super::ours::{SealAnswer, SealHello};

/// A string that can be absent (`google/protobuf/wrappers.proto`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StringValue {
    /// The string.
    #[prost(string, tag = "1")]
    pub value: String,
}

/// Bytes that can be absent, and that are not printed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct BytesValue {
    /// The bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
}

impl fmt::Debug for BytesValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BytesValue(..)")
    }
}

/// Asks for the server's hello.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientHello {
    /// The version that the client speaks.
    #[prost(enumeration = "ProtocolVersion", tag = "1")]
    pub protocol_version: i32,
    /// Ours: begins a sealed session.
    #[prost(message, optional, tag = "100")]
    pub seal: Option<SealHello>,
}

/// Who the server is and what it asks for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerHello {
    /// The version that the server speaks.
    #[prost(enumeration = "ProtocolVersion", tag = "1")]
    pub protocol_version: i32,
    /// Fresh bytes for the proofs.
    #[prost(bytes = "vec", tag = "2")]
    pub session_nonce: Vec<u8>,
    /// The server's keys.
    #[prost(message, optional, tag = "3")]
    pub server_identity: Option<EndpointIdentity>,
    /// How data can be encrypted.
    #[prost(enumeration = "PayloadSuite", repeated, tag = "4")]
    pub payload_suites: Vec<i32>,
    /// How keys can be wrapped.
    #[prost(enumeration = "KeyEnvelopeSuite", repeated, tag = "5")]
    pub key_envelope_suites: Vec<i32>,
    /// How proofs can be signed.
    #[prost(enumeration = "SignatureSuite", repeated, tag = "6")]
    pub signature_suites: Vec<i32>,
    /// What the client has to show.
    #[prost(enumeration = "AuthRequirement", tag = "7")]
    pub auth_requirement: i32,
    /// The server's workspace.
    #[prost(message, optional, tag = "8")]
    pub workspace_id: Option<StringValue>,
    /// The server's project.
    #[prost(message, optional, tag = "9")]
    pub project_id: Option<StringValue>,
    /// The server's record.
    #[prost(message, optional, tag = "10")]
    pub server_id: Option<StringValue>,
    /// The session.
    #[prost(string, tag = "11")]
    pub session_id: String,
    /// The server's signature over all this.
    #[prost(message, optional, tag = "12")]
    pub server_proof: Option<ServerProof>,
    /// Ours: the server's part of a sealed session.
    #[prost(message, optional, tag = "100")]
    pub seal: Option<SealAnswer>,
}

/// Public keys of one end, by purpose.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EndpointIdentity {
    /// Names the key that signs.
    #[prost(bytes = "vec", tag = "1")]
    pub signing_key_id: Vec<u8>,
    /// The key that signs.
    #[prost(bytes = "vec", tag = "2")]
    pub signing_public_key: Vec<u8>,
    /// How it signs.
    #[prost(enumeration = "SignatureSuite", tag = "3")]
    pub signature_suite: i32,
    /// Names the key that keys are wrapped for.
    #[prost(bytes = "vec", tag = "4")]
    pub encryption_key_id: Vec<u8>,
    /// The key that keys are wrapped for.
    #[prost(bytes = "vec", tag = "5")]
    pub encryption_public_key: Vec<u8>,
    /// How they are wrapped.
    #[prost(enumeration = "KeyEnvelopeSuite", tag = "6")]
    pub key_envelope_suite: i32,
}

/// The server's signature over the handshake.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServerProof {
    /// How it is signed.
    #[prost(enumeration = "SignatureSuite", tag = "1")]
    pub signature_suite: i32,
    /// By which key.
    #[prost(bytes = "vec", tag = "2")]
    pub signing_key_id: Vec<u8>,
    /// What is signed.
    #[prost(bytes = "vec", tag = "3")]
    pub transcript_hash: Vec<u8>,
    /// The signature.
    #[prost(bytes = "vec", tag = "4")]
    pub signature: Vec<u8>,
}

/// The client's signature over the handshake.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClientProof {
    /// Whom the client acts for.
    #[prost(message, optional, tag = "1")]
    pub principal_id: Option<StringValue>,
    /// Names the key that signs.
    #[prost(bytes = "vec", tag = "2")]
    pub signing_key_id: Vec<u8>,
    /// The key that signs.
    #[prost(bytes = "vec", tag = "3")]
    pub signing_public_key: Vec<u8>,
    /// How it signs.
    #[prost(enumeration = "SignatureSuite", tag = "4")]
    pub signature_suite: i32,
    /// What is signed.
    #[prost(bytes = "vec", tag = "5")]
    pub transcript_hash: Vec<u8>,
    /// The signature.
    #[prost(bytes = "vec", tag = "6")]
    pub signature: Vec<u8>,
    /// From when it holds (RFC 3339).
    #[prost(string, tag = "7")]
    pub issued_at: String,
    /// Until when it holds (RFC 3339).
    #[prost(string, tag = "8")]
    pub expires_at: String,
    /// The client's device.
    #[prost(message, optional, tag = "9")]
    pub device_id: Option<StringValue>,
    /// The client's browser.
    #[prost(message, optional, tag = "10")]
    pub browser_id: Option<StringValue>,
    /// A statement of the control plane about the key.
    #[prost(message, optional, tag = "11")]
    pub credential: Option<BytesValue>,
}

/// Keys of a session, wrapped for each who may open it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionKeyGrant {
    /// How data is encrypted.
    #[prost(enumeration = "PayloadSuite", tag = "1")]
    pub payload_suite: i32,
    /// Names the key.
    #[prost(bytes = "vec", tag = "2")]
    pub payload_key_id: Vec<u8>,
    /// The key, once for each recipient.
    #[prost(message, repeated, tag = "3")]
    pub key_envelopes: Vec<KeyEnvelope>,
    /// What the key is bound to.
    #[prost(bytes = "vec", tag = "4")]
    pub key_context: Vec<u8>,
    /// How the key is wrapped.
    #[prost(enumeration = "KeyEnvelopeSuite", tag = "5")]
    pub key_envelope_suite: i32,
}

/// A key, wrapped for one recipient.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyEnvelope {
    /// Names the recipient's key.
    #[prost(bytes = "vec", tag = "1")]
    pub recipient_key_id: Vec<u8>,
    /// What the recipient makes the wrapping key of.
    #[prost(bytes = "vec", tag = "2")]
    pub encapsulated_key: Vec<u8>,
    /// The wrapped key.
    #[prost(bytes = "vec", tag = "3")]
    pub wrapped_key: Vec<u8>,
}

/// Why the hellos failed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ProtocolError {
    /// For programs.
    #[prost(enumeration = "ProtocolErrorCode", tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub msg: String,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ProtocolVersion {
    /// Says nothing.
    Unspecified = 0,
    /// The only one.
    Webtty1 = 1,
}

/// How data is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum PayloadSuite {
    /// Says nothing.
    Unspecified = 0,
    /// AES-256-GCM.
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305, which nobody speaks yet.
    Chacha20Poly1305 = 2,
}

/// How keys are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum KeyEnvelopeSuite {
    /// Says nothing.
    Unspecified = 0,
    /// HPKE with X25519, HKDF-SHA256 and AES-256-GCM (RFC 9180).
    HpkeX25519Aes256Gcm = 1,
    /// The same with ChaCha20-Poly1305, which nobody speaks yet.
    HpkeX25519Chacha20Poly1305 = 2,
}

/// How proofs are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SignatureSuite {
    /// Says nothing.
    Unspecified = 0,
    /// ECDSA with P-256 and SHA-256, in ASN.1.
    EcdsaP256Sha256 = 1,
}

/// What the client has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AuthRequirement {
    /// Says nothing.
    Unspecified = 0,
    /// Nothing.
    None = 1,
    /// A [`ClientProof`].
    ClientProof = 2,
}

/// Why the hellos failed, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ProtocolErrorCode {
    /// Says nothing.
    Unspecified = 0,
    /// The client does not know this server.
    UnknownServer = 1,
    /// The server has other keys than the client knows.
    ServerKeyChanged = 2,
    /// The server's proof does not hold.
    ServerProofInvalid = 3,
    /// The client showed nothing.
    ClientProofRequired = 4,
    /// The client's proof does not hold.
    ClientProofInvalid = 5,
    /// The client is known and may not.
    ClientUnauthorized = 6,
    /// The client's key was taken back.
    ClientRevoked = 7,
    /// The proof came too late.
    ChallengeExpired = 8,
    /// The proof came twice.
    ChallengeReplayed = 9,
    /// Somebody between took suites away.
    DowngradeDetected = 10,
    /// No suite that both speak.
    UnsupportedSuite = 11,
    /// The workspace does not vouch for this server.
    WorkspaceTrustRequired = 12,
    /// The workspace does not vouch for this device.
    WorkspaceDeviceUntrusted = 13,
    /// Another server than the registered one.
    RegisteredServerMismatch = 14,
}
