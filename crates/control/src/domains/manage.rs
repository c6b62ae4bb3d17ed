//! API for adding, checking and removing domains.

use std::sync::Arc;

use api::control::domains::{CreateDomain, Domain};
use axum::Json;
use axum::extract::State;
use data_encoding::BASE32_NOPAD;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use store::domains::{self, CertificateValidation, State as DomainState};
use types::event::EventType;
use types::id::{DomainId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use super::changes::{self, Outcome};
use super::check::check_on_request;
use super::lifecycle::FIRST_CHECK;
use super::notice;
use super::read::find;
use super::records::ExpectedRecords;
use super::rules;
use super::view::view;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, ProjectsWrite};
use crate::http_api::extract::{Body, Path, Segment};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::throttle::TooManyAttemptsError;
use crate::runtime::random;

/// Adds a domain. A domain that the project has, also in quarantine, is returned unchanged.
pub(super) async fn create(
    Caller { principal: who, .. }: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Body(body): Body<CreateDomain>,
) -> HandlerResult<(StatusCode, Json<Domain>)> {
    let new = rules::check(&app, &body)?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    // The lock makes each request in a workspace count the domains of the earlier ones.
    let project = access::locked_project(&mut tx, &who, &id, WRITE).await?;
    access::require_usable(&project)?;
    let hostname = new.name.as_str();
    if let Some(existing) = domains::by_hostname(&mut tx, project.id, hostname).await? {
        let expected = ExpectedRecords::new(&app, &project, &existing)?;
        return Ok((StatusCode::CREATED, Json(view(&existing, &expected))));
    }
    let counted = app.domains.additions.record_attempt(&who.user.id, now);
    counted.map_err(|TooManyAttemptsError(seconds)| too_often(seconds))?;
    let most = app.plan_service.terms_of(&project)?.domains;
    let own = domains::of_project(&mut tx, project.id).await?;
    if own.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
        let detail = format!("The plan of the project has {most} custom domains.");
        return Err(access::not_in_plan(detail));
    }
    domains::release_quarantined(&mut tx, hostname, now).await?;
    if domains::holder(&mut tx, hostname).await?.is_some() {
        return Err(changes::taken());
    }
    let domain = domains::Domain {
        id: DomainId::new(unix_millis(now), random::bytes()?),
        project_id: project.id,
        hostname: hostname.to_owned(),
        certificate_validation: new.validation,
        token: draw_token()?,
        state: DomainState::Pending,
        created_by: who.user.id,
        created_at: now,
        verified_at: None,
        last_checked_at: None,
        last_found_at: None,
        failing_since: None,
        suspended_at: None,
        quarantine_until: None,
        next_check_at: now.saturating_add(FIRST_CHECK).unwrap_or(now),
        report: None,
        certificate_expires_at: None,
        ordered_expires_at: None,
        order_problem: None,
        next_order_at: None,
    };
    let expected = ExpectedRecords::new(&app, &project, &domain)?;
    if new.validation == CertificateValidation::Dns01 && expected.delegation.is_none() {
        return Err(no_challenge_zone());
    }
    domains::insert(&mut tx, &domain).await?;
    let kind = EventType::DomainCreated;
    changes::note(&mut tx, &app, (&project, &domain), kind, Some(&who), now).await?;
    tx.commit().await?;
    app.webhooks.wake();
    Ok((StatusCode::CREATED, Json(view(&domain, &expected))))
}

/// Checks the records of a domain now. The response has the result, whether the domain is verified
/// or not.
pub(super) async fn verify(
    Caller { principal: who, .. }: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, domain_id)): Path<(String, String)>,
) -> HandlerResult<Json<Domain>> {
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &who, &project_id, WRITE).await?;
    access::require_usable(&found.project)?;
    let domain = find(&mut conn, &found.project, &domain_id).await?;
    // No connection is occupied during the check.
    drop(conn);
    let expected = ExpectedRecords::new(&app, &found.project, &domain)?;
    if is_recent(&domain, app.now()) {
        return Ok(Json(view(&domain, &expected)));
    }
    let report = check_on_request(&app.domains.resolver, &expected).await;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = access::locked_project(&mut tx, &who, &project_id, WRITE).await?;
    let domain = find(&mut tx, &project, &domain_id).await?;
    let of = (&project, &domain);
    let outcome = changes::apply(&mut tx, &app, of, Some(&report), Some(&who), now).await?;
    tx.commit().await?;
    app.webhooks.wake();
    match outcome {
        Outcome::Kept(domain, change) => {
            if let Some(change) = change {
                notice::send(&app, &project, &domain, change, now).await?;
            }
            let expected = ExpectedRecords::new(&app, &project, &domain)?;
            Ok(Json(view(&domain, &expected)))
        }
        Outcome::Deleted => Err(Problem::not_found().into()),
    }
}

/// Removes a domain. The name is free immediately: another project needs an ownership record of its
/// own.
pub(super) async fn delete(
    Caller { principal: who, .. }: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, domain_id)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = access::locked_project(&mut tx, &who, &project_id, WRITE).await?;
    let domain = find(&mut tx, &project, &domain_id).await?;
    domains::delete(&mut tx, project.id, domain.id, now).await?;
    let kind = EventType::DomainDeleted;
    changes::note(&mut tx, &app, (&project, &domain), kind, Some(&who), now).await?;
    tx.commit().await?;
    app.webhooks.wake();
    Ok(StatusCode::NO_CONTENT)
}

/// True if the stored result is as good as another check.
fn is_recent(domain: &domains::Domain, now: Timestamp) -> bool {
    domain
        .last_checked_at
        // One in the future was made before the clock was set back.
        .is_some_and(|last| last <= now && now.duration_since(last) < CHECK_PAUSE)
}

/// 409 for a domain whose challenges no engine of the project can answer.
fn no_challenge_zone() -> Refusal {
    let detail = "The engines of this project cannot prove names to a certificate authority in the DNS, \
                  which wildcards and dns_01 need. The operator of the platform has to set \
                  domains.challenge_zones to a zone that the engines answer \
                  (certs.acme.dns_responder.zone) or change (certs.acme.dns_update, dns_program). \
                  Until then, add each name below as a domain of its own.";
    let problem = Problem::new(409, "dns_validation_unavailable", detail);
    problem.with_field("hostname").into()
}

/// 429 for a user that adds domains too often.
fn too_often(seconds: u32) -> Refusal {
    let detail = "You have added many domains in a short time; try again later.";
    let problem = Problem::too_many_requests().with_detail(detail);
    problem.with_retry_after(seconds).into()
}

/// The random part of an ownership record: 160 bits.
fn draw_token() -> HandlerResult<String> {
    let bytes: [u8; 20] = random::bytes()?;
    Ok(BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
}

const WRITE: Permission = Permission::AccountProjectsReadWrite;

/// Shortest time between two checks of a domain, so that a client that polls causes few queries.
const CHECK_PAUSE: SignedDuration = SignedDuration::from_secs(5);
