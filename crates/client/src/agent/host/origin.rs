//! Origins (RFC 6454): the part of an address before the path, and rewriting of heads.

use http1::{Authority, Field, FieldValueBuf, Fields};

/// Scheme, host and port. The default port of the scheme equals no port, and names are compared
/// without case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Origin {
    https: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// Origin of a service at this host.
    pub(super) fn of_service(host: &str, is_tls: bool) -> Option<Self> {
        Self::of(is_tls, host.as_bytes())
    }

    /// Parses the whole text as an origin.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (https, rest) = split_scheme(text)?;
        Self::of(https, rest)
    }

    /// Returns the rest of an address that starts with this origin, or with its host only
    /// (`//host/path`).
    pub(super) fn rest_of<'a>(&self, address: &'a [u8]) -> Option<&'a [u8]> {
        let (https, rest) = match address.strip_prefix(b"//") {
            Some(rest) => (self.https, rest),
            None => split_scheme(address)?,
        };
        let end = rest.iter().position(|byte| b"/?#".contains(byte));
        let (authority, rest) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        (Self::of(https, authority)? == *self).then_some(rest)
    }

    fn of(https: bool, authority: &[u8]) -> Option<Self> {
        let authority = Authority::parse(authority)?;
        Some(Self {
            https,
            host: authority.host().to_ascii_lowercase(),
            port: authority.port().unwrap_or(if https { 443 } else { 80 }),
        })
    }
}

/// True for `https`, and the text after `://`.
fn split_scheme(text: &[u8]) -> Option<(bool, &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (scheme, rest) = text.split_at_checked(colon)?;
    let rest = rest.strip_prefix(b"://")?;
    if scheme.eq_ignore_ascii_case(b"https") {
        Some((true, rest))
    } else {
        scheme
            .eq_ignore_ascii_case(b"http")
            .then_some((false, rest))
    }
}

/// Writes a head unchanged, except for the values that `new` returns. `fields` were parsed from
/// `whole`.
pub(super) fn write_head(
    whole: &[u8],
    fields: &Fields<'_>,
    out: &mut Vec<u8>,
    new: impl Fn(&Field<'_>) -> Option<FieldValueBuf>,
) {
    let mut copied = 0;
    for field in fields.iter() {
        let Some(new) = new(&field) else {
            continue;
        };
        // The value is a slice of `whole`.
        let start = field.value.as_ptr().addr() - whole.as_ptr().addr();
        out.extend_from_slice(whole.get(copied..start).unwrap_or_default());
        out.extend_from_slice(&new.as_value());
        copied = start + field.value.len();
    }
    out.extend_from_slice(whole.get(copied..).unwrap_or_default());
}
