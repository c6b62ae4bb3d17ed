//! The format of the edge's own responses, negotiated by `Accept` (RFC 9110, section 12.5.1).

/// Format of an error response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// HTML, if `Accept` names it, as browsers do.
    Page,
    /// Plain text, if `Accept` names it and neither HTML nor JSON.
    Text,
    /// JSON, also without `Accept`.
    #[default]
    Json,
}

impl ErrorFormat {
    /// Returns the format that the values of all `Accept` fields prefer. Wildcard ranges (`*/*`) do
    /// not count, because most programs send them by default.
    pub(crate) fn from_accept<'a>(accepts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        // In the order of our preference, for equal weights.
        let mut formats = [(Self::Page, 0), (Self::Json, 0), (Self::Text, 0)];
        for range in accepts.into_iter().flat_map(|value| value.split(is(b','))) {
            let mut parts = range.split(is(b';')).map(<[u8]>::trim_ascii);
            let Some(format) = parts.next().and_then(Self::named) else {
                continue;
            };
            let weight = parts.find_map(weight).unwrap_or(FULL_WEIGHT);
            for (known, best) in &mut formats {
                if *known == format {
                    *best = weight.max(*best);
                }
            }
        }
        // `max_by_key` returns the last of equal elements, so the order is reversed.
        let best = formats.into_iter().rev().max_by_key(|(_, weight)| *weight);
        best.filter(|(_, weight)| *weight > 0)
            .map_or(Self::Json, |(format, _)| format)
    }

    fn named(media_type: &[u8]) -> Option<Self> {
        NAMES
            .iter()
            .find(|(name, _)| media_type.eq_ignore_ascii_case(name))
            .map(|(_, format)| *format)
    }
}

const NAMES: &[(&[u8], ErrorFormat)] = &[
    (b"text/html", ErrorFormat::Page),
    (b"application/xhtml+xml", ErrorFormat::Page),
    (b"application/json", ErrorFormat::Json),
    (b"application/problem+json", ErrorFormat::Json),
    (b"text/plain", ErrorFormat::Text),
];

/// A weight of 1, in thousandths.
const FULL_WEIGHT: u16 = 1000;

/// The weight of a `q` parameter in thousandths. A malformed one counts as 0.
fn weight(parameter: &[u8]) -> Option<u16> {
    let mut parts = parameter.splitn(2, is(b'=')).map(<[u8]>::trim_ascii);
    let (b"q" | b"Q", value) = (parts.next()?, parts.next()?) else {
        return None;
    };
    let weight = match value {
        [b'1', ..] => FULL_WEIGHT,
        [b'0', b'.', digits @ ..] if digits.len() <= 3 => {
            let mut places = digits.iter().map(|digit| digit.wrapping_sub(b'0'));
            let mut weight = 0;
            for _ in 0..3 {
                let digit = places.next().filter(|digit| *digit <= 9).unwrap_or(0);
                weight = weight * 10 + u16::from(digit);
            }
            weight
        }
        _ => 0,
    };
    Some(weight)
}

fn is(wanted: u8) -> impl Fn(&u8) -> bool {
    move |byte| *byte == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(accept: &str) -> ErrorFormat {
        ErrorFormat::from_accept([accept.as_bytes()])
    }

    #[test]
    fn browsers_get_pages_and_programs_get_json() {
        let chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        for (accept, format) in [
            (chromium, ErrorFormat::Page),
            ("TEXT/HTML", ErrorFormat::Page),
            ("*/*", ErrorFormat::Json),
            ("", ErrorFormat::Json),
            ("text/*", ErrorFormat::Json),
            ("image/png", ErrorFormat::Json),
            ("application/json", ErrorFormat::Json),
            ("application/json, text/plain, */*", ErrorFormat::Json),
            ("text/plain", ErrorFormat::Text),
            ("text/plain;q=0.5, */*;q=0.1", ErrorFormat::Text),
        ] {
            assert_eq!(negotiate(accept), format, "{accept}");
        }
        assert_eq!(ErrorFormat::from_accept([]), ErrorFormat::Json);
        assert_eq!(
            ErrorFormat::from_accept([b"*/*".as_slice(), b"text/html"]),
            ErrorFormat::Page
        );
    }

    #[test]
    fn the_greatest_weight_is_chosen() {
        for (accept, format) in [
            ("application/json, text/html;q=0.9", ErrorFormat::Json),
            (
                "application/json;q=0.25, text/html;q=0.5",
                ErrorFormat::Page,
            ),
            ("text/html; Q = 0.3, text/plain;q=0.301", ErrorFormat::Text),
            (
                "text/html;level=1;q=0.2, text/plain;q=0.1",
                ErrorFormat::Page,
            ),
            ("text/html;q=0", ErrorFormat::Json),
            ("text/html;q=0.000, text/plain", ErrorFormat::Text),
            ("text/html;q=abc", ErrorFormat::Json),
            ("text/html;q=0.12345", ErrorFormat::Json),
            ("text/html;q=", ErrorFormat::Json),
        ] {
            assert_eq!(negotiate(accept), format, "{accept}");
        }
    }
}
