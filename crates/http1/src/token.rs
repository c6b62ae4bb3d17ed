//! Tokens (RFC 9110 §5.6.2).

/// True for the bytes of a token.
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// True for a token: at least one byte, and only bytes of tokens.
pub(crate) const fn is_token(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        if !is_token_byte(*first) {
            return false;
        }
        rest = after;
    }
    !bytes.is_empty()
}
