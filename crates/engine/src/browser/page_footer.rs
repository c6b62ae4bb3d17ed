//! The footer of pages: the operator of the engine, and the contact for reports of abuse.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::page::escaped;
use crate::config::Pages;

/// The footer of pages, made once at the start. It is empty if the operator configured nothing.
#[derive(Debug, Default)]
pub(crate) struct PageFooter {
    /// The logo, as HTML.
    logo: String,
    /// The name and the contact, as HTML.
    lines: String,
    /// The contact, as a line of text.
    text: String,
}

impl PageFooter {
    pub(crate) fn new(pages: &Pages) -> Self {
        // Images neither run scripts nor load anything, also those of SVG files.
        let logo = pages.logo.as_ref().map(|logo| {
            format!(
                "<p class=\"kind\"><img src=\"data:{};base64,{}\" alt=\"\" height=\"32\"></p>",
                logo.media_type,
                STANDARD.encode(&logo.bytes),
            )
        });
        let name = pages.operator_name.as_ref();
        let name = name.map(|name| format!("<p class=\"kind\">{}</p>", escaped(name)));
        let contact = pages.abuse_contact.as_ref();
        let link = contact.map(|contact| {
            format!(
                "<p class=\"kind\"><a href=\"{}\" rel=\"noreferrer nofollow\">Report abuse</a></p>",
                escaped(&contact.href()),
            )
        });
        let text = contact.map(|contact| format!("report abuse: {contact}\n"));
        Self {
            logo: logo.unwrap_or_default(),
            lines: name.into_iter().chain(link).collect(),
            text: text.unwrap_or_default(),
        }
    }

    /// True if a page needs a policy that allows the logo.
    pub(super) fn has_logo(&self) -> bool {
        !self.logo.is_empty()
    }

    /// The whole footer as HTML.
    pub(super) fn html(&self) -> String {
        wrapped(&[&self.logo, &self.lines])
    }

    /// The footer without the logo as HTML.
    pub(super) fn html_without_logo(&self) -> String {
        wrapped(&[&self.lines])
    }

    /// The footer as text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn wrapped(parts: &[&str]) -> String {
    let content = parts.concat();
    if content.is_empty() {
        return content;
    }
    format!("<footer>{content}</footer>")
}
