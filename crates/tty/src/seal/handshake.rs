//! Handshake of three messages, which gives both ends the same keys.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::hmac;
use prost::Message as _;
use zeroize::Zeroizing;

use super::channel::{Channel, Side};
use super::{Identity, KEY_LEN, PublicKey, SECRET_LEN, SealError, VERSION, digest, seal_to};
use crate::message::{OpenCommand, SealAnswer, SealConfirm, SealHello};

/// A client that has sent its hello.
pub struct ClientHandshake {
    identity: PublicKey,
    server: PublicKey,
    fresh: Identity,
    secret: Zeroizing<[u8; SECRET_LEN]>,
    hello: SealHello,
    context: Vec<u8>,
}

/// A client that has the keys and has verified that the server has them.
pub struct ClientReady(Keys);

/// A server that has answered.
pub struct ServerHandshake {
    client: PublicKey,
    keys: Keys,
}

impl ClientHandshake {
    /// Starts a handshake. `context` binds it to one purpose: it is the server's id. `secret` is
    /// fresh random bytes.
    ///
    /// # Errors
    /// [`SealError::Crypto`].
    pub fn begin(
        identity: &Identity,
        server: PublicKey,
        context: &[u8],
        secret: [u8; SECRET_LEN],
    ) -> Result<(Self, SealHello), SealError> {
        let fresh = Identity::generate()?;
        let secret = Zeroizing::new(secret);
        let parts = [
            secret.as_slice(),
            identity.public.as_bytes(),
            fresh.public.as_bytes(),
        ];
        let clear = Zeroizing::new(parts.concat());
        let (encapsulated, sealed) = seal_to(&server, &info(HELLO, context), &server.id(), &clear)?;
        let hello = SealHello {
            version: VERSION,
            server_key_id: server.id().to_vec(),
            encapsulated,
            sealed,
        };
        let handshake = Self {
            identity: identity.public,
            server,
            fresh,
            secret,
            hello: hello.clone(),
            context: context.to_vec(),
        };
        Ok((handshake, hello))
    }

    /// Verifies the server's answer.
    ///
    /// # Errors
    /// The answer is not from the expected server, or was changed.
    pub fn answer(
        self,
        identity: &Identity,
        answer: &SealAnswer,
    ) -> Result<ClientReady, SealError> {
        if identity.public != self.identity {
            return Err(SealError::WrongRecipient);
        }
        let aad = hello_digest(&self.hello, &self.context);
        let open = |key: &Identity, label, encapsulated: &[u8], sealed: &[u8]| {
            let opened = key.open(encapsulated, &info(label, &self.context), &aad, sealed)?;
            let secret: [u8; SECRET_LEN] =
                opened.try_into().map_err(|_| SealError::WrongRecipient)?;
            Ok::<_, SealError>(Zeroizing::new(secret))
        };
        let known = open(identity, ANSWER, &answer.encapsulated, &answer.sealed)?;
        let fresh = open(
            &self.fresh,
            FRESH,
            &answer.fresh_encapsulated,
            &answer.fresh_sealed,
        )?;
        let transcript = transcript(
            &aad,
            [&self.server, &self.identity, &self.fresh.public],
            answer,
        );
        let keys = Keys::derive(&transcript, [&self.secret, &known, &fresh]);
        keys.check(SERVER_CONFIRMS, &[], &answer.confirmation)?;
        Ok(ClientReady(keys))
    }
}

impl ClientReady {
    /// Makes the proof that the client has the keys and sent `open`, and the channel of the
    /// session.
    ///
    /// # Errors
    /// [`SealError::Crypto`].
    pub fn confirm(self, open: &OpenCommand) -> Result<(SealConfirm, Channel), SealError> {
        let confirmation = self.0.code(CLIENT_CONFIRMS, &opened(open))?;
        let channel = self.0.channel(Side::Client)?;
        Ok((SealConfirm { confirmation }, channel))
    }
}

impl ServerHandshake {
    /// Verifies a client's hello, and answers it if `authorized` accepts the client. `secrets` are
    /// fresh random bytes.
    ///
    /// # Errors
    /// The hello is for another server, or from an unauthorized client.
    pub fn accept(
        identity: &Identity,
        context: &[u8],
        hello: &SealHello,
        authorized: impl FnOnce(&PublicKey) -> bool,
        secrets: [[u8; SECRET_LEN]; 2],
    ) -> Result<(Self, SealAnswer), SealError> {
        if hello.version != VERSION {
            return Err(SealError::Version);
        }
        let id = identity.public.id();
        if hello.server_key_id != id {
            return Err(SealError::WrongRecipient);
        }
        let info_hello = info(HELLO, context);
        let clear = identity.open(&hello.encapsulated, &info_hello, &id, &hello.sealed)?;
        let clear = Zeroizing::new(clear);
        let (secret, keys) = clear
            .split_first_chunk::<SECRET_LEN>()
            .ok_or(SealError::WrongRecipient)?;
        let (client, fresh) = keys
            .split_first_chunk::<KEY_LEN>()
            .ok_or(SealError::WrongRecipient)?;
        let fresh: [u8; KEY_LEN] = fresh.try_into().map_err(|_| SealError::WrongRecipient)?;
        let (client, fresh) = (PublicKey(*client), PublicKey(fresh));
        if !authorized(&client) {
            return Err(SealError::Unauthorized);
        }
        let [known_secret, fresh_secret] = secrets.map(Zeroizing::new);
        let aad = hello_digest(hello, context);
        let (encapsulated, sealed) = seal_to(
            &client,
            &info(ANSWER, context),
            &aad,
            known_secret.as_slice(),
        )?;
        let (fresh_encapsulated, fresh_sealed) =
            seal_to(&fresh, &info(FRESH, context), &aad, fresh_secret.as_slice())?;
        let mut answer = SealAnswer {
            encapsulated,
            sealed,
            fresh_encapsulated,
            fresh_sealed,
            confirmation: Vec::new(),
        };
        let transcript = transcript(&aad, [&identity.public, &client, &fresh], &answer);
        let keys = Keys::derive(
            &transcript,
            [&Zeroizing::new(*secret), &known_secret, &fresh_secret],
        );
        answer.confirmation = keys.code(SERVER_CONFIRMS, &[])?;
        Ok((Self { client, keys }, answer))
    }

    /// The claimed identity of the client. It is proved once `confirm` has succeeded.
    pub fn client(&self) -> PublicKey {
        self.client
    }

    /// Verifies the client's `Open` with its confirmation. No command may be started, and no
    /// session looked up, before this succeeds.
    ///
    /// # Errors
    /// [`SealError::Unconfirmed`]: it is another client, or another `Open`.
    pub fn confirm(self, open: &OpenCommand) -> Result<Channel, SealError> {
        let confirm = open.seal.as_ref().ok_or(SealError::Unconfirmed)?;
        self.keys
            .check(CLIENT_CONFIRMS, &opened(open), &confirm.confirmation)?;
        self.keys.channel(Side::Server)
    }
}

macro_rules! silent {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    )*};
}

silent! { ClientHandshake ClientReady ServerHandshake }

/// The secret from which all keys of a session are derived.
struct Keys(Prk);

impl Keys {
    fn derive(transcript: &[u8; 32], secrets: [&Zeroizing<[u8; SECRET_LEN]>; 3]) -> Self {
        let secrets = secrets.map(|secret| secret.as_slice());
        let all = Zeroizing::new(secrets.concat());
        Self(Salt::new(HKDF_SHA256, transcript).extract(&all))
    }

    fn expand(&self, label: &[u8]) -> Result<Zeroizing<[u8; 32]>, SealError> {
        let mut key = Zeroizing::new([0; 32]);
        let info = [DOMAIN, label];
        let expanded = self.0.expand(&info, Len32);
        expanded
            .and_then(|okm| okm.fill(key.as_mut_slice()))
            .map_err(|_| SealError::Crypto)?;
        Ok(key)
    }

    fn code(&self, label: &[u8], what: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.expand(label)?.as_slice());
        Ok(hmac::sign(&key, what).as_ref().to_vec())
    }

    fn check(&self, label: &[u8], what: &[u8], code: &[u8]) -> Result<(), SealError> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.expand(label)?.as_slice());
        hmac::verify(&key, what, code).map_err(|_| SealError::Unconfirmed)
    }

    fn channel(&self, side: Side) -> Result<Channel, SealError> {
        let up = self.expand(b"client to server")?;
        let down = self.expand(b"server to client")?;
        Channel::new(side, &up, &down)
    }
}

struct Len32;

impl KeyType for Len32 {
    fn len(&self) -> usize {
        32
    }
}

fn info(label: &[u8], context: &[u8]) -> Vec<u8> {
    digest(DOMAIN, &[label, context]).to_vec()
}

fn hello_digest(hello: &SealHello, context: &[u8]) -> [u8; 32] {
    let parts = [
        HELLO,
        context,
        &hello.version.to_be_bytes(),
        &hello.server_key_id,
        &hello.encapsulated,
        &hello.sealed,
    ];
    digest(DOMAIN, &parts)
}

/// Digest of the parts of an `Open` that only its client may set: the command, or the session to
/// resume with its counts. An engine that manages sessions may change the other parts.
fn opened(open: &OpenCommand) -> [u8; 32] {
    let config = open.config.as_ref();
    let config = config
        .map(prost::Message::encode_to_vec)
        .unwrap_or_default();
    let session = open.session.as_ref();
    match session.and_then(|session| session.resume.as_ref()) {
        None => digest(DOMAIN, &[b"open", &config]),
        Some(resume) => digest(DOMAIN, &[b"return", &config, &resume.encode_to_vec()]),
    }
}

fn transcript(hello: &[u8; 32], keys: [&PublicKey; 3], answer: &SealAnswer) -> [u8; 32] {
    let [server, client, fresh] = keys.map(|key| key.as_bytes().as_slice());
    let parts = [
        b"transcript",
        hello.as_slice(),
        server,
        client,
        fresh,
        &answer.encapsulated,
        &answer.sealed,
        &answer.fresh_encapsulated,
        &answer.fresh_sealed,
    ];
    digest(DOMAIN, &parts)
}

const DOMAIN: &[u8] = b"svc-webtty-seal-v2";
const HELLO: &[u8] = b"hello";
const ANSWER: &[u8] = b"answer";
const FRESH: &[u8] = b"fresh answer";
const SERVER_CONFIRMS: &[u8] = b"server confirms";
const CLIENT_CONFIRMS: &[u8] = b"client confirms";
