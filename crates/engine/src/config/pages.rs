//! The operator on pages of the edge: the section of the file, and its check.

use std::path::Path;
use std::sync::Arc;

use daemon::config::values::abuse_contact;
use daemon::config::{ConfigError, ConfigErrors};
use daemon::files::read_bounded;
use schemars::JsonSchema;
use serde::Deserialize;
use types::contact::AbuseContact;

/// The operator on pages that visitors see in place of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Name of the operator.
    pub operator_name: Option<String>,
    /// Logo of the operator.
    pub logo: Option<Logo>,
    /// Contact for reports of abuse.
    pub abuse_contact: Option<AbuseContact>,
}

/// An image, which pages contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logo {
    /// `image/png` or `image/svg+xml`.
    pub media_type: &'static str,
    /// The file.
    pub bytes: Arc<[u8]>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PagesSection {
    /// Name of the operator, at most 80 characters.
    #[schemars(example = "Example Networks")]
    pub(super) operator_name: Option<String>,
    /// File of a logo, PNG or SVG, at most 32768 bytes. It is read at the start, and each page
    /// contains it, so a small file is best. Scripts in an SVG image do not run.
    #[schemars(example = "/etc/svc/logo.svg")]
    pub(super) logo_file: Option<String>,
    /// Contact for reports of abuse: a mail address, or an https address.
    #[schemars(example = "abuse@example.com")]
    pub(super) abuse_contact: Option<String>,
}

/// Checks the section, and reads the logo.
pub(super) fn check(section: PagesSection) -> Result<Pages, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let name = section.operator_name.map(operator_name).transpose();
    let logo = section.logo_file.map(|file| logo(Path::new(&file)));
    let contact = abuse_contact("pages.abuse_contact", section.abuse_contact);
    let pages = Pages {
        operator_name: errors.keep_or_default(name),
        logo: errors.keep_or_default(logo.transpose()),
        abuse_contact: errors.keep_or_default(contact),
    };
    errors.finish(Some(pages))
}

fn operator_name(name: String) -> Result<String, ConfigError> {
    let length = name.chars().count();
    if name.chars().any(char::is_control) || !(1..=MAX_NAME_CHARS).contains(&length) {
        let message = format!("the name must have 1 to {MAX_NAME_CHARS} characters on one line");
        return Err(ConfigError::new("pages.operator_name", message));
    }
    Ok(name)
}

fn logo(file: &Path) -> Result<Logo, ConfigError> {
    let invalid = |problem: String| {
        ConfigError::new("pages.logo_file", format!("{}: {problem}", file.display()))
    };
    let bytes = read_bounded(file, MAX_LOGO_BYTES).map_err(|error| invalid(error.to_string()))?;
    let media_type = media_type(&bytes)
        .ok_or_else(|| invalid("the file is neither a PNG nor an SVG image".to_owned()))?;
    Ok(Logo {
        media_type,
        bytes: bytes.into(),
    })
}

fn media_type(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(PNG) {
        return Some("image/png");
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let prologs = ["<?xml", "<!--", "<!DOCTYPE svg"];
    let has_prolog = prologs.iter().any(|prolog| text.starts_with(prolog));
    let is_svg = text.starts_with("<svg") || (has_prolog && text.contains("<svg"));
    is_svg.then_some("image/svg+xml")
}

/// The first bytes of each PNG image (RFC 2083 section 3.1).
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Longest name: it fits on one line of a page.
const MAX_NAME_CHARS: usize = 80;
/// Largest logo. A refusal with it is still smaller than the first window of a connection.
const MAX_LOGO_BYTES: u64 = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(section: PagesSection) -> Vec<String> {
        let errors = check(section).unwrap_err();
        errors.iter().map(|error| error.key.clone()).collect()
    }

    #[test]
    fn wrong_values_are_reported_with_their_keys() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let all = PagesSection {
            operator_name: Some("a\nb".to_owned()),
            logo_file: Some("/nowhere/logo.png".to_owned()),
            abuse_contact: Some("http://example.com".to_owned()),
        };
        assert_eq!(
            keys(all),
            [
                "pages.operator_name",
                "pages.logo_file",
                "pages.abuse_contact"
            ]
        );
        let large = [PNG, &vec![0; 32 * 1024]].concat();
        for wrong in [
            file("large.png", &large),
            file("page.html", b"<!doctype html><svg></svg>"),
            file("empty.svg", b""),
        ] {
            let section = PagesSection {
                logo_file: Some(wrong),
                ..PagesSection::default()
            };
            assert_eq!(keys(section), ["pages.logo_file"]);
        }
        for (name, bytes, media_type) in [
            ("a.png", PNG, "image/png"),
            ("a.svg", b"<svg/>".as_slice(), "image/svg+xml"),
            (
                "b.svg",
                b"<?xml version='1.0'?>\n<svg/>".as_slice(),
                "image/svg+xml",
            ),
        ] {
            let section = PagesSection {
                logo_file: Some(file(name, bytes)),
                ..PagesSection::default()
            };
            let logo = check(section).unwrap().logo.unwrap();
            assert_eq!((logo.media_type, &*logo.bytes), (media_type, bytes));
        }
    }
}
