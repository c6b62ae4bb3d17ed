//! Identities of the two ends: the published handshake, with our additions.

use std::fmt;

use super::extensions::{SealAnswer, SealHello};

/// A string that can be absent (`google/protobuf/wrappers.proto`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StringValue {
    /// The string.
    #[prost(string, tag = "1")]
    pub value: String,
}

/// Bytes that can be absent, and that `Debug` does not print.
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

/// Requests the server's hello.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientHello {
    /// The client's protocol version.
    #[prost(enumeration = "ProtocolVersion", tag = "1")]
    pub protocol_version: i32,
    /// Ours: starts a sealed session.
    #[prost(message, optional, tag = "100")]
    pub seal: Option<SealHello>,
}

/// The server's identity and its requirements.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerHello {
    /// The server's protocol version.
    #[prost(enumeration = "ProtocolVersion", tag = "1")]
    pub protocol_version: i32,
    /// Fresh bytes for the proofs.
    #[prost(bytes = "vec", tag = "2")]
    pub session_nonce: Vec<u8>,
    /// The server's keys.
    #[prost(message, optional, tag = "3")]
    pub server_identity: Option<EndpointIdentity>,
    /// Supported suites for data.
    #[prost(enumeration = "PayloadSuite", repeated, tag = "4")]
    pub payload_suites: Vec<i32>,
    /// Supported suites for wrapping keys.
    #[prost(enumeration = "KeyEnvelopeSuite", repeated, tag = "5")]
    pub key_envelope_suites: Vec<i32>,
    /// Supported suites for signatures.
    #[prost(enumeration = "SignatureSuite", repeated, tag = "6")]
    pub signature_suites: Vec<i32>,
    /// Authentication that the client must provide.
    #[prost(enumeration = "AuthRequirement", tag = "7")]
    pub auth_requirement: i32,
    /// The server's workspace.
    #[prost(message, optional, tag = "8")]
    pub workspace_id: Option<StringValue>,
    /// The server's project.
    #[prost(message, optional, tag = "9")]
    pub project_id: Option<StringValue>,
    /// Id of the server's record.
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
    /// Id of the signing key.
    #[prost(bytes = "vec", tag = "1")]
    pub signing_key_id: Vec<u8>,
    /// The public signing key.
    #[prost(bytes = "vec", tag = "2")]
    pub signing_public_key: Vec<u8>,
    /// The signature suite.
    #[prost(enumeration = "SignatureSuite", tag = "3")]
    pub signature_suite: i32,
    /// Id of the key for wrapping.
    #[prost(bytes = "vec", tag = "4")]
    pub encryption_key_id: Vec<u8>,
    /// The public key for wrapping.
    #[prost(bytes = "vec", tag = "5")]
    pub encryption_public_key: Vec<u8>,
    /// The suite for wrapping keys.
    #[prost(enumeration = "KeyEnvelopeSuite", tag = "6")]
    pub key_envelope_suite: i32,
}

/// The server's signature over the handshake.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServerProof {
    /// The signature suite.
    #[prost(enumeration = "SignatureSuite", tag = "1")]
    pub signature_suite: i32,
    /// Id of the signing key.
    #[prost(bytes = "vec", tag = "2")]
    pub signing_key_id: Vec<u8>,
    /// Hash of the signed transcript.
    #[prost(bytes = "vec", tag = "3")]
    pub transcript_hash: Vec<u8>,
    /// The signature.
    #[prost(bytes = "vec", tag = "4")]
    pub signature: Vec<u8>,
}

/// The client's signature over the handshake.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClientProof {
    /// The principal for which the client acts.
    #[prost(message, optional, tag = "1")]
    pub principal_id: Option<StringValue>,
    /// Id of the signing key.
    #[prost(bytes = "vec", tag = "2")]
    pub signing_key_id: Vec<u8>,
    /// The public signing key.
    #[prost(bytes = "vec", tag = "3")]
    pub signing_public_key: Vec<u8>,
    /// The signature suite.
    #[prost(enumeration = "SignatureSuite", tag = "4")]
    pub signature_suite: i32,
    /// Hash of the signed transcript.
    #[prost(bytes = "vec", tag = "5")]
    pub transcript_hash: Vec<u8>,
    /// The signature.
    #[prost(bytes = "vec", tag = "6")]
    pub signature: Vec<u8>,
    /// Start of the validity (RFC 3339).
    #[prost(string, tag = "7")]
    pub issued_at: String,
    /// End of the validity (RFC 3339).
    #[prost(string, tag = "8")]
    pub expires_at: String,
    /// The client's device.
    #[prost(message, optional, tag = "9")]
    pub device_id: Option<StringValue>,
    /// The client's browser.
    #[prost(message, optional, tag = "10")]
    pub browser_id: Option<StringValue>,
    /// A credential of the control plane for the key.
    #[prost(message, optional, tag = "11")]
    pub credential: Option<BytesValue>,
}

/// Keys of a session, wrapped for each recipient.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionKeyGrant {
    /// The suite for data.
    #[prost(enumeration = "PayloadSuite", tag = "1")]
    pub payload_suite: i32,
    /// Id of the key.
    #[prost(bytes = "vec", tag = "2")]
    pub payload_key_id: Vec<u8>,
    /// The key, once for each recipient.
    #[prost(message, repeated, tag = "3")]
    pub key_envelopes: Vec<KeyEnvelope>,
    /// Context to which the key is bound.
    #[prost(bytes = "vec", tag = "4")]
    pub key_context: Vec<u8>,
    /// The suite for wrapping keys.
    #[prost(enumeration = "KeyEnvelopeSuite", tag = "5")]
    pub key_envelope_suite: i32,
}

/// A key, wrapped for one recipient.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyEnvelope {
    /// Id of the recipient's key.
    #[prost(bytes = "vec", tag = "1")]
    pub recipient_key_id: Vec<u8>,
    /// Encapsulated secret, from which the recipient derives the wrapping key.
    #[prost(bytes = "vec", tag = "2")]
    pub encapsulated_key: Vec<u8>,
    /// The wrapped key.
    #[prost(bytes = "vec", tag = "3")]
    pub wrapped_key: Vec<u8>,
}

/// Reason of a failed handshake.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ProtocolError {
    /// Machine-readable code.
    #[prost(enumeration = "ProtocolErrorCode", tag = "1")]
    pub code: i32,
    /// Message for people.
    #[prost(string, tag = "2")]
    pub msg: String,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ProtocolVersion {
    /// Not specified.
    Unspecified = 0,
    /// The only version.
    Webtty1 = 1,
}

/// Suites for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum PayloadSuite {
    /// Not specified.
    Unspecified = 0,
    /// AES-256-GCM.
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305, which no program supports yet.
    Chacha20Poly1305 = 2,
}

/// Suites for wrapping keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum KeyEnvelopeSuite {
    /// Not specified.
    Unspecified = 0,
    /// HPKE with X25519, HKDF-SHA256 and AES-256-GCM (RFC 9180).
    HpkeX25519Aes256Gcm = 1,
    /// The same with ChaCha20-Poly1305, which no program supports yet.
    HpkeX25519Chacha20Poly1305 = 2,
}

/// Suites for signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SignatureSuite {
    /// Not specified.
    Unspecified = 0,
    /// ECDSA with P-256 and SHA-256, in ASN.1.
    EcdsaP256Sha256 = 1,
}

/// Authentication that the client must provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AuthRequirement {
    /// Not specified.
    Unspecified = 0,
    /// No authentication.
    None = 1,
    /// A [`ClientProof`].
    ClientProof = 2,
}

/// Codes of a failed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ProtocolErrorCode {
    /// Not specified.
    Unspecified = 0,
    /// The server is unknown to the client.
    UnknownServer = 1,
    /// The server's keys differ from those that the client has.
    ServerKeyChanged = 2,
    /// The server's proof is invalid.
    ServerProofInvalid = 3,
    /// The client sent no proof.
    ClientProofRequired = 4,
    /// The client's proof is invalid.
    ClientProofInvalid = 5,
    /// The client is known, but not permitted.
    ClientUnauthorized = 6,
    /// The client's key was revoked.
    ClientRevoked = 7,
    /// The proof was too late.
    ChallengeExpired = 8,
    /// The proof was used before.
    ChallengeReplayed = 9,
    /// An attacker removed suites.
    DowngradeDetected = 10,
    /// No suite is supported by both ends.
    UnsupportedSuite = 11,
    /// The workspace has not certified this server.
    WorkspaceTrustRequired = 12,
    /// The workspace has not certified this device.
    WorkspaceDeviceUntrusted = 13,
    /// The server is not the registered one.
    RegisteredServerMismatch = 14,
}
