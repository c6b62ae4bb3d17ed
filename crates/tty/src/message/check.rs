//! Validation of messages, beyond the protobuf encoding.

use super::limits::{
    MAX_DATA, MAX_ENVELOPES, MAX_ERROR, MAX_GRANT, MAX_ID, MAX_KEY, MAX_LIST, MAX_PATH, MAX_SIDE,
    MAX_SUITES, MAX_TEXTS, MAX_USER,
};
use super::{
    AckSession, Attach, ClientProof, Config, Data, EncryptedPayload, EndpointIdentity, Heartbeat,
    Kind, Notice, OpenSession, ParameterKind, Payload, SealAnswer, SealHello, ServerHello,
    SessionKeyGrant, Stream, TerminalSize, Termination, User,
};

/// Reasons for which a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message is not protobuf, or does not have exactly one kind.
    #[error("not a WebTTY message")]
    Malformed,
    /// The kind is unknown or missing.
    #[error("an unknown WebTTY message")]
    Unknown,
    /// A part is larger than its limit.
    #[error("{0} is too large")]
    TooLarge(&'static str),
    /// A part is invalid.
    #[error("{0} is not valid")]
    Invalid(&'static str),
}

pub(super) fn check(kind: &Kind) -> Result<(), MessageError> {
    match kind {
        Kind::Open(open) => {
            at_most("capabilities", open.capabilities.len(), MAX_SUITES)?;
            check_present(open.config.as_ref(), config)?;
            check_present(open.session_key_grant.as_ref(), key_grant)?;
            check_present(open.client_proof.as_ref(), client_proof)?;
            check_present(open.session.as_ref(), open_session)?;
            check_present(open.seal.as_ref(), |seal| {
                at_most("confirmation", seal.confirmation.len(), MAX_KEY)
            })
        }
        Kind::Ack(ack) => check_present(ack.session.as_ref(), ack_session),
        Kind::Error(error) => at_most("error", error.msg.len(), MAX_ERROR),
        Kind::Close(close) => check_present(close.termination.as_ref(), termination),
        Kind::Data(given) => data(given),
        Kind::Parameter(parameter) => match &parameter.parameter {
            Some(ParameterKind::TerminalSize(given)) => size(given),
            None => Err(MessageError::Invalid("parameter")),
        },
        Kind::Heartbeat(given) => heartbeat(given),
        Kind::Attach(given) => attach(given),
        Kind::ServerHello(hello) => server_hello(hello),
        Kind::ProtocolError(error) => at_most("error", error.msg.len(), MAX_ERROR),
        Kind::ClientHello(hello) => check_present(hello.seal.as_ref(), seal_hello),
    }
}

fn config(config: &Config) -> Result<(), MessageError> {
    let args = config.cmd_args.iter().map(String::as_str);
    texts("arguments", config.cmd_args.len(), args)?;
    let pairs = config.env_vars.iter();
    let words = pairs.flat_map(|pair| [pair.key.as_str(), pair.value.as_str()]);
    texts("environment", config.env_vars.len(), words)?;
    let unfit = |key: &str| key.is_empty() || key.contains('=');
    if config.env_vars.iter().any(|pair| unfit(&pair.key)) {
        return Err(MessageError::Invalid("environment"));
    }
    check_present(config.workdir.as_ref(), |workdir| {
        texts("working directory", 1, [workdir.value.as_str()].into_iter())?;
        at_most("working directory", workdir.value.len(), MAX_PATH)
    })?;
    check_present(config.username.as_ref(), |user| match &user.payload {
        Some(User::Name(name)) => {
            texts("user", 1, [name.as_str()].into_iter())?;
            at_most("user", name.len(), MAX_USER)
        }
        Some(User::Id(_)) | None => Ok(()),
    })
}

/// Texts for the operating system, for which a NUL ends a text.
fn texts<'t>(
    what: &'static str,
    count: usize,
    words: impl Iterator<Item = &'t str>,
) -> Result<(), MessageError> {
    at_most(what, count, MAX_LIST)?;
    let mut total = 0;
    for word in words {
        if word.contains('\0') {
            return Err(MessageError::Invalid(what));
        }
        total += word.len();
    }
    at_most(what, total, MAX_TEXTS)
}

fn open_session(session: &OpenSession) -> Result<(), MessageError> {
    at_most("features", session.features.len(), MAX_SUITES)?;
    check_present(session.resume.as_ref(), |resume| {
        at_most("resume token", resume.token.len(), MAX_KEY)
    })?;
    check_present(session.size.as_ref(), size)
}

fn ack_session(session: &AckSession) -> Result<(), MessageError> {
    at_most("features", session.features.len(), MAX_SUITES)?;
    at_most("session id", session.session_id.len(), MAX_ID)?;
    at_most("resume token", session.resume_token.len(), MAX_KEY)
}

fn termination(termination: &Termination) -> Result<(), MessageError> {
    at_most("signal", termination.signal.len(), MAX_ID)?;
    at_most("detail", termination.detail.len(), MAX_ERROR)
}

fn data(data: &Data) -> Result<(), MessageError> {
    Stream::try_from(data.r#type).map_err(|_| MessageError::Invalid("stream"))?;
    match &data.payload {
        Some(Payload::Data(bytes)) => at_most("data", bytes.len(), MAX_DATA),
        Some(Payload::Eos(_)) => Ok(()),
        Some(Payload::EncryptedData(payload)) => encrypted(payload),
        None => Err(MessageError::Invalid("data")),
    }
}

fn encrypted(payload: &EncryptedPayload) -> Result<(), MessageError> {
    at_most("data", payload.ciphertext.len(), MAX_DATA)?;
    check_present(payload.payload_crypto.as_ref(), |crypto| {
        at_most("key id", crypto.payload_key_id.len(), MAX_KEY)?;
        at_most("nonce", crypto.nonce.len(), MAX_KEY)?;
        at_most("context", crypto.aad_context.len(), MAX_GRANT)
    })
}

fn size(size: &TerminalSize) -> Result<(), MessageError> {
    let sides = [size.row, size.col, size.xpixel, size.ypixel];
    if sides.iter().any(|side| *side > MAX_SIDE) {
        return Err(MessageError::TooLarge("terminal size"));
    }
    Ok(())
}

fn heartbeat(heartbeat: &Heartbeat) -> Result<(), MessageError> {
    check_present(heartbeat.notice.as_deref(), notice)?;
    check_present(heartbeat.decision.as_ref(), |decision| {
        at_most("request id", decision.request_id.len(), MAX_ID)
    })
}

fn notice(notice: &Notice) -> Result<(), MessageError> {
    at_most("participant id", notice.participant_id.len(), MAX_ID)?;
    at_most("request id", notice.request_id.len(), MAX_ID)?;
    at_most("user", notice.user.len(), MAX_USER)?;
    at_most("reason", notice.reason.len(), MAX_ERROR)?;
    check_present(notice.size.as_ref(), size)
}

fn attach(attach: &Attach) -> Result<(), MessageError> {
    at_most("session id", attach.session_id.len(), MAX_ID)?;
    at_most("participant id", attach.participant_id.len(), MAX_ID)?;
    at_most("attach grant", attach.attach_grant.len(), MAX_GRANT)?;
    at_most("capabilities", attach.capabilities.len(), MAX_SUITES)?;
    for id in [&attach.device_id, &attach.browser_id] {
        check_present(id.as_ref(), |id| at_most("device", id.value.len(), MAX_ID))?;
    }
    check_present(attach.client_proof.as_ref(), client_proof)
}

fn server_hello(hello: &ServerHello) -> Result<(), MessageError> {
    at_most("nonce", hello.session_nonce.len(), MAX_KEY)?;
    check_present(hello.server_identity.as_ref(), identity)?;
    for suites in [
        &hello.payload_suites,
        &hello.key_envelope_suites,
        &hello.signature_suites,
    ] {
        at_most("suites", suites.len(), MAX_SUITES)?;
    }
    for id in [&hello.workspace_id, &hello.project_id, &hello.server_id] {
        check_present(id.as_ref(), |id| at_most("id", id.value.len(), MAX_ID))?;
    }
    at_most("session id", hello.session_id.len(), MAX_ID)?;
    check_present(hello.server_proof.as_ref(), |proof| {
        keys([
            &proof.signing_key_id,
            &proof.transcript_hash,
            &proof.signature,
        ])
    })?;
    check_present(hello.seal.as_ref(), seal_answer)
}

fn identity(identity: &EndpointIdentity) -> Result<(), MessageError> {
    keys([&identity.signing_key_id, &identity.signing_public_key])?;
    keys([&identity.encryption_key_id, &identity.encryption_public_key])
}

fn client_proof(proof: &ClientProof) -> Result<(), MessageError> {
    keys([&proof.signing_key_id, &proof.signing_public_key])?;
    keys([&proof.transcript_hash, &proof.signature])?;
    at_most("time", proof.issued_at.len(), MAX_ID)?;
    at_most("time", proof.expires_at.len(), MAX_ID)?;
    for id in [&proof.principal_id, &proof.device_id, &proof.browser_id] {
        check_present(id.as_ref(), |id| at_most("id", id.value.len(), MAX_ID))?;
    }
    check_present(proof.credential.as_ref(), |credential| {
        at_most("credential", credential.value.len(), MAX_GRANT)
    })
}

fn key_grant(grant: &SessionKeyGrant) -> Result<(), MessageError> {
    keys([&grant.payload_key_id])?;
    at_most("key context", grant.key_context.len(), MAX_GRANT)?;
    at_most("key envelopes", grant.key_envelopes.len(), MAX_ENVELOPES)?;
    for envelope in &grant.key_envelopes {
        keys([
            &envelope.recipient_key_id,
            &envelope.encapsulated_key,
            &envelope.wrapped_key,
        ])?;
    }
    Ok(())
}

fn seal_hello(hello: &SealHello) -> Result<(), MessageError> {
    keys([&hello.server_key_id, &hello.encapsulated, &hello.sealed])
}

fn seal_answer(answer: &SealAnswer) -> Result<(), MessageError> {
    keys([&answer.encapsulated, &answer.sealed, &answer.confirmation])?;
    keys([&answer.fresh_encapsulated, &answer.fresh_sealed])
}

fn keys<const N: usize>(keys: [&Vec<u8>; N]) -> Result<(), MessageError> {
    keys.iter()
        .try_for_each(|key| at_most("key material", key.len(), MAX_KEY))
}

fn check_present<T>(
    part: Option<&T>,
    check: impl FnOnce(&T) -> Result<(), MessageError>,
) -> Result<(), MessageError> {
    part.map_or(Ok(()), check)
}

fn at_most(what: &'static str, len: usize, max: usize) -> Result<(), MessageError> {
    if len > max {
        return Err(MessageError::TooLarge(what));
    }
    Ok(())
}
