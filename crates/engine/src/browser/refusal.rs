//! The page that a browser shows in place of the service's response. It states the problem, and the
//! next steps for the visitor and for the publisher of the tunnel.
//!
//! The page is built only from the problem and its reference, so it cannot contain addresses,
//! credentials or data of a service.

use std::sync::LazyLock;

use types::problem::Problem;

use super::page::{Page, STYLE, document, escaped, hash_of};
use super::page_footer::PageFooter;

impl Page {
    /// A page that shows a problem.
    pub(crate) fn problem(problem: &Problem, footer: &PageFooter) -> Self {
        let Steps { visitor, owner } = steps(problem);
        let title = format!("{} {}", problem.status, problem.title());
        let (again, record) = (retry_hint(problem), record(problem));
        let body = format!(
            "<main><p class=\"kind\">{title}</p><h1>{detail}</h1><p>{visitor}{again}</p>\
             <h2>If this address is yours</h2><p>{owner}</p>{record}\
             <dl><dt>Code</dt><dd><code>{code}</code></dd>{reference}</dl></main>{footer}",
            detail = escaped(&problem.detail),
            visitor = marked(visitor),
            owner = marked(owner),
            record =
                record.map_or_else(String::new, |record| format!("<p>{}</p>", marked(&record))),
            code = escaped(problem.code),
            reference = reference(problem).map_or_else(String::new, |reference| format!(
                "<dt>Reference</dt><dd><code>{}</code></dd>",
                escaped(reference)
            )),
            footer = footer.html(),
        );
        let policy = if footer.has_logo() {
            &POLICY_WITH_LOGO
        } else {
            &REFUSAL_POLICY
        };
        Self {
            html: document(&title, &body),
            policy: policy.as_str(),
        }
    }
}

/// The same content as plain text.
pub(crate) fn in_text(problem: &Problem, footer: &PageFooter) -> String {
    let Steps { visitor, owner } = steps(problem);
    let mut text = format!(
        "{} {}: {}\n{visitor}{}\nIf this address is yours: {owner}{}\ncode: {}\n",
        problem.status,
        problem.title(),
        problem.detail,
        retry_hint(problem),
        record(problem).map_or_else(String::new, |record| format!(" {record}")),
        problem.code,
    );
    if let Some(reference) = reference(problem) {
        text.push_str("reference: ");
        text.push_str(reference);
        text.push('\n');
    }
    text.push_str(footer.text());
    text
}

/// Sentence about the time of a retry.
fn retry_hint(problem: &Problem) -> String {
    match problem.retry_after {
        Some(1) => " Reload the page in a second.".to_owned(),
        Some(seconds) => format!(" Reload the page in {seconds} seconds."),
        None => String::new(),
    }
}

/// Sentence about the command that shows the reason.
fn record(problem: &Problem) -> Option<String> {
    reference(problem).map(|reference| format!("Run `svc explain {reference}` to see why."))
}

fn reference(problem: &Problem) -> Option<&str> {
    problem.reference.as_deref()
}

/// Next steps for each of the two readers of the page. Commands are between backticks.
struct Steps {
    visitor: &'static str,
    owner: &'static str,
}

#[expect(
    clippy::too_many_lines,
    reason = "a table of texts, one for each reason"
)]
fn steps(problem: &Problem) -> Steps {
    let (visitor, owner) = match problem.code {
        "tunnel_not_found" => (
            "Check the spelling of the address, or ask its owner.",
            "Start the agent that publishes it: `svc tunnels` shows the names that are online.",
        ),
        "tunnel_offline" => (
            "It was online a short while ago. It reconnects automatically.",
            "Check that the agent runs and reaches the engine: run `svc doctor` on its machine; \
             `svc clients` shows the connected agents.",
        ),
        "upstream_unreachable" => (
            "The tunnel is online, but the service behind it is not. Try again later.",
            "Start the service, or correct its address in the agent's configuration: the output of \
             `svc forward` shows each stream and what failed.",
        ),
        "upstream_invalid_response" => (
            "You cannot fix this: the service has to be corrected.",
            "Correct the response of the service, or the scheme of its address in the agent's \
             configuration (http or https).",
        ),
        "upstream_timeout" => (
            "The tunnel is online, but the service behind it is slow or stuck. Try again later.",
            "Check what the service is busy with: the output of its `svc forward` shows each \
             stream.",
        ),
        "loop_detected" => (
            "You cannot fix this: the service has to be configured differently.",
            "Point the agent, or the service behind it, at the service itself instead of a public \
             name of this engine.",
        ),
        "rate_limited" => (
            "Too many requests right now; try again shortly.",
            "The project's plan limits how often its tunnels may be visited: `svc project usage` \
             shows the limit and the current use.",
        ),
        "service_unavailable" => (
            "Temporary; try again in a moment.",
            "The engine is starting, stopping or at its limits; see its log and metrics.",
        ),
        "password_required" => (
            "Reload the page, and enter the user name and the password that you received with the \
             address. If you received no user name, any name will do.",
            "The passwords are those of `--basic-auth-file` or `--basic-auth` of its `svc forward`.",
        ),
        "invalid_password" => (
            "Reload the page, and enter the user name and the password again.",
            "The passwords are those of `--basic-auth-file` or `--basic-auth` of its `svc forward`.",
        ),
        "too_many_requests" => (
            "Ask the person who gave you the address for the right password.",
            "Other networks are not affected, and neither are visitors who signed in before.",
        ),
        "sign_in_failed" => (
            "The sign-in was not started in this browser, took too long, or cookies are disabled. \
             Open the original address again.",
            "If it happens to all users, compare the clocks of the engine and of its platform.",
        ),
        "not_a_member" => (
            "Ask a member of the project to invite you, or sign in with another account.",
            "Invite the user: `svc workspace invite`.",
        ),
        "challenge_required" | "challenge_failed" => (
            "Open the address in a browser with JavaScript and cookies enabled.",
            "Programs need a valid token: `svc token create` creates one.",
        ),
        "misdirected_request" => (
            "Reload the page: the browser will open a separate connection for this name.",
            "Clients must send the same name in TLS (SNI) and in `Host`.",
        ),
        "address_not_trusted" => (
            "Connect from an allowed network, for example your company VPN.",
            "Change `trusted_ips` of the tunnel, or `trustedIps` with `svc project settings set`.",
        ),
        "country_not_allowed" => (
            "If you use a VPN or proxy, turn it off.",
            "Change `geo_ip` of the tunnel, or `geoIp` with `svc project settings set`.",
        ),
        "access_ended" => (
            "Open the address again: the response states who may visit it now.",
            "A credential, a membership, the project or a rule of the tunnel changed during the \
             request.",
        ),
        "hostname_taken_down" => (
            "Only the operator can restore it.",
            "The operator sent the reason to the owners of the workspace: `svc project takedowns` \
             shows it.",
        ),
        "tls_version_too_low" => (
            "Use a newer browser.",
            "Change `minTlsVersion` with `svc project settings set`.",
        ),
        "public_access_not_allowed" => (
            "Ask the person who gave you the address for another way.",
            "Add a guard to the tunnel (`--token-auth`, `--svc-auth`), or change \
             `publicAccessPolicy` with `svc project settings set`.",
        ),
        "invalid_certificate" => (
            "Choose another client certificate, or ask the publisher to register yours.",
            "`svc credential list` shows the registered certificates.",
        ),
        "insufficient_scope" => (
            "Ask the person who gave you the token for one that is valid for this address.",
            "Create a credential with the permission `tunnels.streams.create-delete` whose \
             `resources` include this project, tunnel and path.",
        ),
        "ambiguous_credentials" => (
            "Send only one proof of identity: a client certificate, a token or a session.",
            "If `mtls_auth` is combined with other proofs, visitors must choose one of them.",
        ),
        "https_required" => (
            "Open the same address with https.",
            "Plain requests other than GET and HEAD are not redirected: their body was already \
             sent unencrypted.",
        ),
        "unauthenticated" => (
            "Open it with the token or link that you received, which may have expired, or in another \
             way that the first sentence names.",
            "`svc token create` creates a token, `svc token inspect` shows its content.",
        ),
        "internal_error" => (
            "Try again later.",
            "This is a defect of the engine; see its log for details.",
        ),
        _ => match problem.status {
            401 => (
                "Open it with the token or link that you received; it may have expired.",
                "`svc token create` creates a token, `svc token inspect` shows its content.",
            ),
            403 => (
                "Ask the person who gave you the address.",
                "The settings of the tunnel and of its project define who may visit it.",
            ),
            404 | 405 => (
                "Go back, or open the address without its path.",
                "Paths below `/.well-known/svc/` are reserved for the edge.",
            ),
            _ => (
                "Go back and try again; if the error remains, delete the cookies of this address.",
                "The edge accepts only well-formed requests within its limits.",
            ),
        },
    };
    Steps { visitor, owner }
}

/// Converts text to HTML. Text between backticks becomes code.
fn marked(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    for (index, part) in text.split('`').enumerate() {
        let code = index % 2 == 1;
        out.push_str(if code { "<code>" } else { "" });
        out.push_str(&escaped(part));
        out.push_str(if code { "</code>" } else { "" });
    }
    out
}

/// The page cannot load, run or send anything.
static REFUSAL_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src {}; frame-ancestors 'none'; base-uri 'none'; \
         form-action 'none'",
        hash_of(STYLE),
    )
});

/// Also allows the image that the page contains.
static POLICY_WITH_LOGO: LazyLock<String> =
    LazyLock::new(|| format!("{}; img-src data:", REFUSAL_POLICY.as_str()));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Logo, Pages};

    /// Problems that the edge sends in place of a service's response, in the order of the statuses.
    fn problems() -> Vec<Problem> {
        vec![
            Problem::invalid_request("the authority is malformed"),
            Problem::ambiguous_credentials(),
            Problem::unauthenticated(),
            Problem::invalid_token(),
            Problem::password_required(),
            Problem::invalid_password(),
            Problem::new(401, "invalid_certificate", "The certificate is not known."),
            Problem::insufficient_scope("tunnels.streams.create-delete"),
            Problem::https_required(),
            Problem::challenge_required(),
            Problem::new(403, "country_not_allowed", "Not from this country."),
            Problem::new(403, "access_ended", "The access has ended."),
            Problem::new(403, "hostname_taken_down", "Taken down by the operator."),
            Problem::not_found(),
            Problem::tunnel_not_found(),
            Problem::only_allowed("GET"),
            Problem::conflict(),
            Problem::misdirected_request(),
            Problem::new(429, "rate_limited", "Too often.").with_retry_after(1),
            Problem::too_many_requests().with_retry_after(3),
            Problem::internal(),
            Problem::not_implemented(),
            Problem::upstream_unreachable(),
            Problem::upstream_invalid_response(),
            Problem::unavailable().with_retry_after(5),
            Problem::tunnel_offline(5),
            Problem::upstream_timeout(),
            Problem::loop_detected(),
        ]
    }

    #[test]
    fn pages_are_small_and_contain_the_problem() {
        for problem in problems() {
            let problem = problem.with_reference("3f0c1e");
            let page = Page::problem(&problem, &PageFooter::default());
            let html = &page.html;
            assert!(html.len() < 6 * 1024, "{}: {}", problem.code, html.len());
            for part in [
                format!("<h1>{}</h1>", escaped(&problem.detail)),
                format!("<title>{} {}</title>", problem.status, problem.title()),
                format!("<code>{}</code>", problem.code),
                "<code>svc explain 3f0c1e</code>".to_owned(),
            ] {
                assert!(html.contains(&part), "{}: {part}", problem.code);
            }
            for outside in [
                "http:", "https://", "src=", "<script", "<link", "@import", "url(",
            ] {
                assert!(!html.contains(outside), "{}: {outside}", problem.code);
            }
            let text = in_text(&problem, &PageFooter::default());
            assert!(text.contains(&*problem.detail) && text.contains("reference: 3f0c1e\n"));
        }
    }

    #[test]
    fn the_text_of_a_page() {
        let none = PageFooter::default();
        let offline = Problem::tunnel_offline(5).with_reference("3f0c1e");
        insta::assert_snapshot!("offline", Page::problem(&offline, &none).html);
        insta::assert_snapshot!("offline-text", in_text(&offline, &none));
        let all: Vec<_> = problems()
            .iter()
            .map(|problem| in_text(problem, &none))
            .collect();
        insta::assert_snapshot!("all", all.join("\n"));
    }

    #[test]
    fn details_are_escaped() {
        let problem = Problem::new(400, "invalid_request", "").with_detail("<b>\"&`x`");
        let html = Page::problem(&problem, &PageFooter::default()).html;
        assert!(html.contains("<h1>&lt;b&gt;&quot;&amp;`x`</h1>"), "{html}");
    }

    /// The page still loads nothing: the logo is a part of it, and only such images are allowed.
    #[test]
    fn pages_have_the_operator_and_the_contact_for_reports_of_abuse() {
        let pages = Pages {
            operator_name: Some("Example <Networks>".to_owned()),
            logo: Some(Logo {
                media_type: "image/svg+xml",
                bytes: b"<svg onload=\"alert(1)\"/>".as_slice().into(),
            }),
            abuse_contact: Some("abuse@example.com".parse().unwrap()),
        };
        let footer = PageFooter::new(&pages);
        let problem = Problem::tunnel_not_found();
        let page = Page::problem(&problem, &footer);
        for part in [
            "<p class=\"kind\">Example &lt;Networks&gt;</p>",
            "<img src=\"data:image/svg+xml;base64,",
            "<a href=\"mailto:abuse@example.com\" rel=\"noreferrer nofollow\">",
        ] {
            assert!(page.html.contains(part), "{part}: {}", page.html);
        }
        assert!(!page.html.contains("onload"));
        assert!(page.policy.starts_with("default-src 'none'; "));
        assert!(page.policy.ends_with("; img-src data:"));
        assert!(in_text(&problem, &footer).ends_with("report abuse: abuse@example.com\n"));
        let without = Page::problem(&problem, &PageFooter::default());
        assert!(!without.policy.contains("img-src") && !without.html.contains("<footer>"));
    }
}
