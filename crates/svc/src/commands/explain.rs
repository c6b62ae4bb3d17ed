//! `svc explain`: why the edge responded as it did.
//!
//! Every refusal of the edge carries a reference, which is the id of its record. For a reference,
//! the record is looked up. For an address, the request is made from here first. The report then
//! combines the observations from outside (certificate, response, timing, token claims) with the
//! record.

mod advice;
pub(super) mod certificate;
mod record;
mod report;
mod token;
mod visit;

use std::path::PathBuf;

use clap::Parser;
use http::{HeaderName, HeaderValue};
use reqwest::Url;
use types::id::StreamId;

pub(super) use self::record::Record;

use self::{
    record::{Lookup, RecordSource},
    report::VisitReport,
    token::TokenCheck,
    visit::Visitor,
};
use crate::{
    connection::{config_directory, contexts, non_empty_path, path},
    context::{self, Context},
    failure::Failure,
    output,
    output::Format,
    platform::{Session, SessionFlags},
    proxy::ProxyFlag,
};

/// The flags of `svc explain`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc explain 0af7651916cd43dd8448eb21
  svc explain https://web-e7e8a732.t.engine.example.com/reports --token \"$TOKEN\"")]
pub(crate) struct Args {
    /// The reference of a refusal, or an https address to request now
    #[arg(value_name = "REFERENCE|URL", value_parser = subject)]
    subject: Subject,

    /// With an address: the token of the request. Default: none. With a reference: the token for
    /// the platform. Default: `SVC_TOKEN` or the context
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// With an address: an additional header of the request (repeatable)
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,

    /// The project of the record: endpoint, id or name. Default: the project of the address, or the
    /// selected one
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    /// The platform, `https://host`
    #[arg(
        long,
        env = "SVC_API_URL",
        value_name = "URL",
        hide_env_values = true,
        help_heading = "Platform"
    )]
    api_url: Option<String>,

    /// CA certificates for platform and edge (PEM). Default: those of the system
    #[arg(
        long,
        env = "SVC_CA_FILE",
        value_name = "FILE",
        hide_env_values = true,
        value_parser = path(),
        help_heading = "Platform"
    )]
    ca_file: Option<PathBuf>,

    /// Context to take missing values from
    #[arg(
        long,
        env = "SVC_CONTEXT",
        value_name = "NAME",
        hide_env_values = true,
        add = contexts(),
        help_heading = "Platform"
    )]
    context: Option<String>,

    /// Configuration directory
    #[arg(
        long,
        env = "SVC_CONFIG",
        value_name = "DIR",
        hide_env_values = true,
        value_parser = path(),
        help_heading = "Platform"
    )]
    config: Option<PathBuf>,

    #[command(flatten)]
    proxy: ProxyFlag,
}

/// The subject of the explanation.
#[derive(Clone, Debug)]
enum Subject {
    Reference(StreamId),
    Address(Box<Url>),
}

fn subject(text: &str) -> Result<Subject, String> {
    if let Ok(reference) = text.parse() {
        return Ok(Subject::Reference(reference));
    }
    let url = text.parse::<Url>().ok().filter(|url| {
        matches!(url.scheme(), "https" | "http")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    });
    url.map(|url| Subject::Address(Box::new(url)))
        .ok_or_else(|| "a reference has 24 hex digits, an address starts with https://".to_owned())
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("expected a name, a colon, and a value")?;
    let name = name
        .trim()
        .parse()
        .map_err(|_invalid| format!("`{}` is not the name of a header field", name.trim()))?;
    let mut value = HeaderValue::from_str(value.trim())
        .map_err(|_invalid| format!("the value of {name} cannot be sent"))?;
    // The value may be a credential, so it is never printed.
    value.set_sensitive(true);
    Ok((name, value))
}

/// Explains the subject.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let telling = match &args.subject {
        Subject::Reference(reference) => explain_reference(&args, *reference).await?,
        Subject::Address(url) => explain_address(&args, url).await?,
    };
    match args.output {
        Format::Json => output::json(&telling),
        Format::Text => telling
            .lines()
            .iter()
            .try_for_each(|text| output::line(text)),
    }
}

async fn explain_reference(args: &Args, reference: StreamId) -> Result<VisitReport, Failure> {
    if !args.headers.is_empty() {
        return Err(Failure::usage("--header needs an address")
            .hint("give the address instead of the reference to send the request again"));
    }
    let session = args
        .platform(args.token.clone().or_else(token_of_environment))
        .open()
        .map_err(|failure| args.without_platform(failure))?;
    let place = record_source(args, &session, None).await?;
    let found = Lookup {
        session: &session,
        source: &place,
        reference,
    };
    Ok(VisitReport::of_record(found.wait().await?))
}

async fn explain_address(args: &Args, url: &Url) -> Result<VisitReport, Failure> {
    let context = args.read_context()?;
    let session = args.platform(token_of_environment()).open();
    let session = session.map_err(|failure| args.without_platform(failure));
    let visitor = Visitor {
        url,
        token: args.token.as_deref().map(str::trim),
        headers: &args.headers,
        proxies: args.proxy.proxies()?,
        ca_file: non_empty_path(args.ca_file.as_ref()).cloned().or_else(|| {
            let context = context.as_ref()?;
            let is_theirs = visit::is_of_engine(url, context.engine.as_deref()?);
            context.ca_file.clone().filter(|_| is_theirs)
        }),
    };
    let visit = visitor.send().await?;
    let endpoint = url.host_str().and_then(visit::endpoint_of);
    // Without a platform, or without permission to query it, the report still contains the other
    // findings.
    let (place, unknown) = match &session {
        Ok(session) => match record_source(args, session, endpoint).await {
            Ok(place) => (Some(place), None),
            Err(failure) => (None, Some(failure.message().to_owned())),
        },
        Err(failure) => (None, Some(failure.message().to_owned())),
    };
    let project = place.as_ref().and_then(RecordSource::single_project);
    let token = visitor.effective_token();
    let token = token.map(|token| TokenCheck::of(&token, url, project));
    let (record, unknown) = match (&session, &place, visit.reference()) {
        (Ok(session), Some(place), Some(reference)) => {
            let lookup = Lookup {
                session,
                source: place,
                reference,
            };
            match lookup.wait().await {
                Ok(record) => (Some(record), None),
                Err(failure) => (None, Some(failure.message().to_owned())),
            }
        }
        (_, _, None) => (None, None),
        (_, _, Some(_)) => (None, unknown),
    };
    Ok(VisitReport::of_visit(visit, token, record, unknown))
}

/// The projects whose records are searched: the named project, or the one in the address, or the
/// selected one, or all that the caller can see.
async fn record_source(
    args: &Args,
    session: &Session,
    endpoint: Option<&str>,
) -> Result<RecordSource, Failure> {
    if let Some(project) = args.project.as_deref().or(endpoint) {
        return Ok(RecordSource::One(Box::new(
            session.find_project(project).await?,
        )));
    }
    let selected = session
        .context
        .as_ref()
        .is_some_and(|context| context.project.is_some());
    if selected {
        return Ok(RecordSource::One(Box::new(session.project(None).await?)));
    }
    session.projects().await.map(RecordSource::All)
}

impl Args {
    fn platform(&self, token: Option<String>) -> SessionFlags {
        SessionFlags {
            api_url: self.api_url.clone(),
            token,
            ca_file: self.ca_file.clone(),
            proxy: self.proxy.clone(),
            context: self.context.clone(),
            config: self.config.clone(),
        }
    }

    fn read_context(&self) -> Result<Option<Context>, Failure> {
        let Some(directory) = config_directory(self.config.as_ref()) else {
            return Ok(None);
        };
        Ok(context::load_effective(&directory, self.context.as_deref())?.1)
    }

    /// A reference can only be looked up at a platform. An engine without a platform has only its
    /// log.
    fn without_platform(&self, failure: Failure) -> Failure {
        let context = self.read_context().ok().flatten();
        if self.api_url.is_some() || context.is_none_or(|context| context.api_url.is_some()) {
            return failure;
        }
        Failure::usage(NO_PLATFORM).hint(
            "the engine's access log has a line with this id; `svc explain URL` sends a request to \
             the address and reports what is visible from outside",
        )
    }
}

/// The token that other commands use. It is sent only to the platform and never to the address,
/// which may belong to a third party.
fn token_of_environment() -> Option<String> {
    std::env::var("SVC_TOKEN").ok()
}

const NO_PLATFORM: &str = "no platform is configured, and an engine without one keeps no records";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_addresses_are_distinguished() {
        assert!(matches!(
            subject("0AF7651916cd43dd8448eb21"),
            Ok(Subject::Reference(_))
        ));
        assert!(matches!(
            subject("https://a.example/x?y"),
            Ok(Subject::Address(_))
        ));
        for bad in [
            "",
            "web",
            "0af7",
            "ftp://a.example/",
            "https://ann:secret@a.example/",
            "svc://web",
        ] {
            assert!(subject(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn header_values_are_not_printed() {
        let (name, value) = header("Cookie: secret=1").unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("cookie", "secret=1")
        );
        assert!(!format!("{value:?}").contains("secret"));
        assert!(header("Cookie").is_err());
        assert!(header("a b: c").is_err());
    }
}
