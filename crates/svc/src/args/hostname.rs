//! Internationalised host names.

use reqwest::Url;

/// The host name in A-labels, which engines use. Any other text stays as it is, so that the engine
/// refuses it with the reason.
pub(crate) fn in_a_labels(hostname: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || c == '-' || c == '.';
    if hostname.is_ascii() || !hostname.chars().all(is_name) {
        return hostname.to_owned();
    }
    let url = Url::parse(&format!("https://{hostname}")).ok();
    let name = url.as_ref().and_then(Url::host_str);
    name.unwrap_or(hostname).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_internationalised_names_are_converted() {
        for (hostname, expected) in [
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("shop", "shop"),
            ("Shop.example", "Shop.example"),
            ("a b", "a b"),
            ("ü@other.example", "ü@other.example"),
            ("ü.example/path", "ü.example/path"),
            ("", ""),
        ] {
            assert_eq!(in_a_labels(hostname), expected, "{hostname}");
        }
    }
}
