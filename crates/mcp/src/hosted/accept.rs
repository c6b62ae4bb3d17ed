//! The media types that a client accepts (RFC 9110 section 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

/// True if the client accepts JSON, which is the type of every response. The SDK compares `Accept`
/// with two fixed names, but clients also send wildcards, parameters and weights, or only JSON.
pub(super) fn admits_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    let ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut best = None;
    for range in ranges {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let position = RANGES
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name));
        let Some(position) = position else { continue };
        let candidate = (position, !parts.any(is_zero_weight));
        // The most specific range decides. Of two equal ones, the one that accepts.
        best = best.max(Some(candidate));
    }
    best.is_some_and(|(_, is_accepted)| is_accepted)
}

/// Ranges that contain JSON, the most specific one last.
const RANGES: [&str; 3] = ["*/*", "application/*", "application/json"];

/// True for `q=0` in any of its forms. A malformed weight accepts nothing.
fn is_zero_weight(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else {
        return false;
    };
    name.trim().eq_ignore_ascii_case("q")
        && !weight
            .trim()
            .parse::<f32>()
            .is_ok_and(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        admits_json(&headers)
    }

    #[test]
    fn the_most_specific_range_decides() {
        for good in [
            &[][..],
            &["application/json"],
            &["*/*"],
            &["application/*"],
            &["application/json, text/event-stream"],
            &["text/event-stream, application/json;q=0.5"],
            &["Application/JSON; charset=utf-8"],
            &["application/json;q=0.001"],
            &["text/html", "*/*;q=0.1"],
            &["*/*;q=0, application/json"],
            &["application/json;q=0, application/json;profile=x"],
        ] {
            assert!(admits(good), "{good:?}");
        }
        for bad in [
            &[""][..],
            &["text/event-stream"],
            &["text/html"],
            &["application/json;q=0"],
            &["application/json;q=0.000, */*"],
            &["application/json;q=x"],
            &["application/jsonx"],
            &["text/*"],
        ] {
            assert!(!admits(bad), "{bad:?}");
        }
    }
}
