//! Origins (RFC 6454): what stands before the path of an address, and heads with other ones.

use http1::{Authority, Field, FieldValueBuf, Fields};

/// Scheme, host and port. A port that the scheme implies is the same as none, and the case of a
/// name does not count.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Origin {
    https: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// That of a service at this host, which speaks HTTP without TLS.
    pub(super) fn http(host: &str) -> Option<Self> {
        Self::of(false, host.as_bytes())
    }

    /// Reads the whole text as one.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (https, rest) = split_scheme(text)?;
        Self::of(https, rest)
    }

    /// What follows this origin in an address that begins with it, or with its host alone
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

/// Whether it is `https`, and what comes behind `://`.
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

/// Writes a head byte for byte, but for values that `new` gives. `fields` were read from `whole`.
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
        // The value lies in `whole`, from where it was parsed.
        let start = field.value.as_ptr().addr() - whole.as_ptr().addr();
        out.extend_from_slice(whole.get(copied..start).unwrap_or_default());
        out.extend_from_slice(&new.as_value());
        copied = start + field.value.len();
    }
    out.extend_from_slice(whole.get(copied..).unwrap_or_default());
}
