//! HTML pages of the edge. They load no external resources.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::challenge::Puzzle;
use super::page_footer::PageFooter;

/// A page with its content security policy.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) html: String,
    /// `Content-Security-Policy`.
    pub(crate) policy: &'static str,
}

impl Page {
    /// A page that solves a puzzle, sends the number to the path `answer`, and then opens the
    /// address `target`.
    pub(crate) fn challenge(
        puzzle: &Puzzle,
        (answer, target): (&str, &str),
        footer: &PageFooter,
    ) -> Self {
        let attributes = [
            ("puzzle", puzzle.text.as_str()),
            ("bits", &puzzle.bits.to_string()),
            ("answer", answer),
            ("target", target),
        ];
        // The script replaces this text. It remains visible in browsers without scripts.
        let attributes =
            attributes.map(|(name, value)| format!(" data-{name}=\"{}\"", escaped(value)));
        let body = format!(
            "<main{}><h1>One moment</h1><p id=\"status\" role=\"status\">This page needs \
             JavaScript. Allow it for this address and reload the page, or use a token.</p><a \
             class=\"button\" id=\"again\" href=\"{}\" hidden>Try \
             again</a></main>{}<script>{SCRIPT}</script>",
            attributes.concat(),
            escaped(target),
            footer.html_without_logo(),
        );
        Self {
            html: document("One moment", &body),
            policy: CHALLENGE_POLICY.as_str(),
        }
    }

    /// Confirmation page for the sign-out. The form is sent to `action`.
    pub(crate) fn sign_out(action: &str) -> Self {
        let body = format!(
            "<main><h1>Sign out</h1><p>This ends your session at this address, in this browser.</p>\
             <form method=\"post\" action=\"{}\"><button>Sign out</button></form></main>",
            escaped(action),
        );
        Self {
            html: document("Sign out", &body),
            policy: PLAIN_POLICY.as_str(),
        }
    }

    /// Page after the sign-out.
    pub(crate) fn signed_out() -> Self {
        let body = "<main><h1>You are signed out</h1><p>Your session at this address has ended. \
            You may still be signed in to the platform, which signs you in here again when you \
            open this address.</p><a class=\"button\" href=\"/\">Sign in again</a></main>";
        Self {
            html: document("You are signed out", body),
            policy: PLAIN_POLICY.as_str(),
        }
    }
}

pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )
}

/// Escapes text for HTML and for attributes in double quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            other => out.push(other),
        }
    }
    out
}

const SCRIPT: &str = include_str!("challenge.js");
pub(super) const STYLE: &str = include_str!("page.css");

/// Allows only our own script and style, by their hashes.
static CHALLENGE_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        hash_of(SCRIPT),
        hash_of(STYLE),
    )
});

static PLAIN_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src {}; form-action 'self'; frame-ancestors 'none'; \
         base-uri 'none'",
        hash_of(STYLE),
    )
});

pub(super) fn hash_of(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(digest))
}
