//! `svc domain`: custom domains of a project.

mod certificate;
mod wait;

use api::control::domains::{
    CREATE, CreateDomain, DELETE, Domain, DomainCheckResult, DomainKind, DomainList,
    DomainRecordPurpose, DomainStatus, GET, LIST, VERIFY,
};
use clap::{Parser, Subcommand};
use serde::Serialize;
use serde_json::Value;
use types::domain_name::{DomainName, registered_name};

use super::project::{ProjectArg, confirm_named_deletion};
use crate::failure::{Code, Failure};
use crate::id_prefix::{self, Candidate, Candidates};
use crate::output;
use crate::output::Format;
use crate::platform::Session;

/// The subcommands of `svc domain`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a domain: shows the DNS records to enter, and waits until they are found
    Add(AddArgs),
    /// List the domains of a project
    List(ProjectArg),
    /// Show a domain with its records and the latest check
    Show(NamedArgs),
    /// Check the DNS records of a domain now
    Verify(NamedArgs),
    /// Upload a certificate of your own for a domain, or remove it
    #[command(subcommand)]
    Certificate(certificate::Command),
    /// Remove a domain
    Remove(RemoveArgs),
}

/// The flags of `svc domain add`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc domain add app.example.com
  svc domain add '*.app.example.com' --no-wait")]
pub(crate) struct AddArgs {
    /// Host name, or `*.` and a host name for all names directly below it
    name: String,

    /// Add all names directly below the host name, as `*.` does
    #[arg(long)]
    wildcard: bool,

    /// Do not wait until the records are found
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    on: ProjectArg,
}

/// A named domain.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc domain show app.example.com")]
pub(crate) struct NamedArgs {
    /// The domain: its name, its id or the start of its id
    domain: String,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc domain remove`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc domain remove app.example.com --yes")]
pub(crate) struct RemoveArgs {
    /// The domain: its name, its id or the start of its id
    domain: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    on: ProjectArg,
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Add(args) => add(args).await,
        Command::List(on) => list(on).await,
        Command::Show(args) => show(args).await,
        Command::Verify(args) => verify(args).await,
        Command::Certificate(command) => certificate::run(command).await,
        Command::Remove(args) => remove(args).await,
    }
}

async fn add(args: AddArgs) -> Result<(), Failure> {
    let body = CreateDomain {
        hostname: args.name,
        kind: args.wildcard.then_some(DomainKind::Wildcard),
        certificate_validation: None,
    };
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    let call = session.platform.call(CREATE, &[&project.id]).body(&body)?;
    // The same domain again is the same object.
    let domain: Domain = call.repeatable().answer().await?;
    let is_finished = args.no_wait || domain.status == DomainStatus::Verified;
    if args.on.output == Format::Text {
        show_records(&domain)?;
    }
    if is_finished {
        return match args.on.output {
            Format::Json => output::json(&domain),
            Format::Text => {
                output::message(next_step(&domain));
                Ok(())
            }
        };
    }
    let verified = wait::until_verified(&session, &project.id, &domain).await?;
    match args.on.output {
        Format::Json => output::json(&verified),
        Format::Text => {
            output::message(&format!("{} is verified", verified.hostname));
            Ok(())
        }
    }
}

async fn list(on: ProjectArg) -> Result<(), Failure> {
    let session = on.flags.open()?;
    let project = session.project(on.project.as_deref()).await?;
    let list = domains(&session, &project.id).await?;
    if on.output == Format::Json {
        return output::json(&list);
    }
    let row = |domain: &Domain| {
        vec![
            domain.hostname.clone(),
            word(&domain.status),
            domain.created_at.clone(),
            domain.last_checked_at.clone().unwrap_or_default(),
            domain.id.clone(),
        ]
    };
    let rows: Vec<_> = list.domains.iter().map(row).collect();
    output::table(&["DOMAIN", "STATUS", "CREATED", "CHECKED", "ID"], &rows)
}

async fn show(args: NamedArgs) -> Result<(), Failure> {
    let (session, project, found) = open(&args.on, &args.domain).await?;
    let call = session.platform.call(GET, &[&project, &found.id]);
    print(args.on.output, &call.answer().await?)
}

async fn verify(args: NamedArgs) -> Result<(), Failure> {
    let (session, project, found) = open(&args.on, &args.domain).await?;
    let call = session.platform.call(VERIFY, &[&project, &found.id]);
    let domain: Domain = call.answer().await?;
    print(args.on.output, &domain)?;
    if domain.status == DomainStatus::Verified {
        Ok(())
    } else {
        Err(not_verified(&domain))
    }
}

async fn remove(args: RemoveArgs) -> Result<(), Failure> {
    let (session, project, found) = open(&args.on, &args.domain).await?;
    let given = hostname(&args.domain).unwrap_or_else(|| args.domain.clone());
    confirm_named_deletion(
        &format!("the domain {}", found.hostname),
        &given,
        &[&found.hostname, &found.id],
        args.yes,
    )?;
    let call = session.platform.call(DELETE, &[&project, &found.id]);
    call.execute().await?;
    output::message(&format!("the domain {} is removed", found.hostname));
    Ok(())
}

async fn domains(session: &Session, project: &str) -> Result<DomainList, Failure> {
    Ok(session.platform.call(LIST, &[project]).answer().await?)
}

/// Opens the platform, and finds the domain. Also returns the id of the project.
async fn open(on: &ProjectArg, text: &str) -> Result<(Session, String, Domain), Failure> {
    let session = on.flags.open()?;
    let project = session.project(on.project.as_deref()).await?.id;
    let list = domains(&session, &project).await?;
    let found = find(list, text)?;
    Ok((session, project, found))
}

/// The domain with this name, id or start of an id.
fn find(list: DomainList, text: &str) -> Result<Domain, Failure> {
    let id = if let Some(name) = hostname(text) {
        let mut domains = list.domains.iter();
        let named = domains.find(|domain| domain.hostname == name);
        named.map(|domain| domain.id.clone())
    } else if id_prefix::is_prefix(text) {
        let candidates = list.domains.iter();
        let candidates: Candidates = candidates
            .map(|domain| Candidate::new(&*domain.id, &*domain.hostname))
            .collect();
        id_prefix::select("domain", text, candidates)?.map(|found| found.id)
    } else {
        Some(text.to_owned())
    };
    let mut domains = list.domains.into_iter();
    domains
        .find(|domain| Some(&domain.id) == id.as_ref() || domain.hostname == text)
        .ok_or_else(|| {
            let text = output::plain(text);
            Failure::new(Code::Failed, format!("the project has no domain `{text}`"))
                .hint("`svc domain list` lists its domains")
        })
}

/// The text in the form of the platform, if it is a host name.
fn hostname(text: &str) -> Option<String> {
    let name: DomainName = text.parse().ok()?;
    Some(name.to_string())
}

fn print(format: Format, domain: &Domain) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(domain);
    }
    output::record(&fields(domain))
}

fn fields(domain: &Domain) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("domain", domain.hostname.clone()),
        ("id", domain.id.clone()),
        ("status", word(&domain.status)),
        ("certificate", certificate::state_text(&domain.certificate)),
    ];
    for (name, time) in [
        ("verified", &domain.verified_at),
        ("checked", &domain.last_checked_at),
        ("failing since", &domain.failing_since),
        ("suspended from", &domain.suspends_at),
        ("released from", &domain.releases_at),
        ("quarantine until", &domain.quarantine_until),
    ] {
        fields.extend(time.clone().map(|time| (name, time)));
    }
    for record in &domain.records {
        let text = format!("{} {} {}", record.kind, record.name, record.value);
        fields.push(("record", text));
    }
    for check in &domain.checks {
        let mut text = format!("{}: {}", word(&check.purpose), check.detail);
        if !check.seen.is_empty() {
            text.push_str(" Found: ");
            text.push_str(&check.seen.join(", "));
        }
        fields.push(("check", text));
    }
    fields
}

/// Prints the records as a table to copy.
fn show_records(domain: &Domain) -> Result<(), Failure> {
    let rows: Vec<_> = domain
        .records
        .iter()
        .map(|record| {
            vec![
                record.kind.clone(),
                record.name.clone(),
                record.value.clone(),
            ]
        })
        .collect();
    output::message("enter these records at the DNS provider of the domain:");
    output::table(&["TYPE", "NAME", "VALUE"], &rows)?;
    if let Some(text) = other_traffic_records(domain) {
        output::message(&output::plain(&text));
    }
    Ok(())
}

/// The records that may replace the one of traffic. A CNAME record has no place beside the records
/// of a zone (RFC 1034 section 3.6.2), so that the name that its owner has registered needs them.
fn other_traffic_records(domain: &Domain) -> Option<String> {
    let mut records = domain.records.iter();
    let traffic = records.find(|record| record.purpose == DomainRecordPurpose::Traffic)?;
    let host = &traffic.value;
    let others = format!("ALIAS {host}, or A and AAAA with the addresses of {host}");
    let name = &domain.hostname;
    Some(if registered_name(name) == name {
        format!("{name} cannot have a CNAME record if it is a zone: enter {others}")
    } else {
        format!("possible as well, in place of CNAME: {others}")
    })
}

fn next_step(domain: &Domain) -> &'static str {
    if domain.status == DomainStatus::Verified {
        "the domain is verified"
    } else {
        "after that, check them with `svc domain verify`; the platform also checks them automatically"
    }
}

fn not_verified(domain: &Domain) -> Failure {
    let missing = domain
        .checks
        .iter()
        .find(|check| check.result != DomainCheckResult::Found);
    let failure = Failure::new(
        Code::Failed,
        format!("{} is not verified", output::plain(&domain.hostname)),
    )
    .named("domain_not_verified");
    match missing {
        Some(check) => failure.hint(output::plain(&check.detail)),
        None => failure,
    }
}

/// An enum value as the API writes it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> DomainList {
        let domain = |id: &str, hostname: &str| {
            json!({
                "id": id, "projectId": "prj_1", "hostname": hostname, "kind": "hostname",
                "certificateValidation": "tls_alpn_01", "status": "pending", "records": [],
                "checks": [], "createdAt": "2026-01-01T00:00:00.000Z",
            })
        };
        let domains = [
            domain("dom_01h455vb4pex5vsknk084sn02q", "app.example.com"),
            domain("dom_01h455vb4pex5vsknk084sn02r", "xn--bcher-kva.example"),
            domain("dom_01j455vb4pex5vsknk084sn02s", "*.example.com"),
        ];
        serde_json::from_value(json!({ "domains": domains })).unwrap()
    }

    #[test]
    fn a_domain_is_found_by_its_name_and_by_the_start_of_its_id() {
        for (text, hostname) in [
            ("app.example.com", "app.example.com"),
            ("APP.example.com.", "app.example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("*.example.com", "*.example.com"),
            ("dom_01h455vb4pex5vsknk084sn02r", "xn--bcher-kva.example"),
            ("dom_01j", "*.example.com"),
        ] {
            assert_eq!(find(list(), text).unwrap().hostname, hostname, "{text}");
        }
        for text in ["other.example.com", "dom_02", "dom", "dom_01h", ""] {
            assert!(find(list(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_traffic_of_a_registered_name_needs_no_cname() {
        let mut domain = list().domains.remove(0);
        assert_eq!(other_traffic_records(&domain), None);
        let record = json!({
            "purpose": "traffic", "type": "CNAME", "name": "app.example.com",
            "value": "0a1b2c3d.engine.example",
        });
        domain.records = vec![serde_json::from_value(record).unwrap()];
        let others = "ALIAS 0a1b2c3d.engine.example, or A and AAAA with the addresses of \
                      0a1b2c3d.engine.example";
        let text = other_traffic_records(&domain).unwrap();
        assert_eq!(
            text,
            format!("possible as well, in place of CNAME: {others}")
        );
        domain.hostname = "example.co.uk".to_owned();
        let text = other_traffic_records(&domain).unwrap();
        assert!(
            text.starts_with("example.co.uk cannot have a CNAME"),
            "{text}"
        );
        assert!(text.ends_with(others), "{text}");
    }

    #[test]
    fn the_failure_has_the_next_step() {
        let mut domain = list().domains.remove(0);
        let check = json!({
            "purpose": "ownership", "result": "missing", "seen": [],
            "detail": "The record is missing. Enter: TXT a \"b\"",
        });
        domain.checks = vec![serde_json::from_value(check).unwrap()];
        let failure = format!("{:?}", not_verified(&domain));
        assert!(failure.contains("Enter: TXT a"), "{failure}");
    }
}
