//! One credential for one project.

use api::control::turn::{
    DEFAULT_TTL_SECONDS, IssueTurnCredential, MAX_TTL_SECONDS, TurnCredential,
};
use credentials::turn::{api_password, api_username};
use jiff::Timestamp;
use store::projects::Project;
use store::usage::{self, TurnUsage};
use types::problem::Problem;

use crate::app::App;
use crate::caller::Principal;
use crate::http_api::problem::HandlerResult;
use crate::projects::region_of;

/// Lifetime of a credential in seconds, from 1 to 3600 (TU-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ttl(u32);

impl Ttl {
    pub(super) fn parse(body: IssueTurnCredential) -> HandlerResult<Self> {
        let seconds = body.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS);
        if (1..=MAX_TTL_SECONDS).contains(&seconds) {
            Ok(Self(seconds))
        } else {
            let detail = format!("ttlSeconds is not an integer from 1 to {MAX_TTL_SECONDS}");
            Err(Problem::invalid_request(detail)
                .with_field("ttlSeconds")
                .into())
        }
    }
}

/// Issues a credential. It never outlives the caller's credential.
pub(super) async fn issue(
    app: &App,
    who: &Principal,
    project: &Project,
    ttl: Ttl,
) -> HandlerResult<TurnCredential> {
    let now = app.now();
    let relay = relay_of(app, project).ok_or_else(|| {
        tracing::error!("neither turn.domain nor an engine is configured");
        Problem::unavailable().with_detail("This platform has no TURN relay.")
    })?;
    let lifetime = capped_lifetime(now, ttl, who.expires_at());
    let expires_at = now.as_second().saturating_add(i64::from(lifetime));
    let username = api_username(expires_at, &project.endpoint, who.user.id.as_str());
    let password = api_password(app.keys.turn_secret(), relay.realm, &username)
        .ok_or_else(Problem::internal)?;
    note(app, project, now).await?;
    Ok(TurnCredential {
        username,
        credential: password,
        urls: relay.urls(),
        ttl: lifetime,
    })
}

/// The lifetime in whole seconds. It is at least one, because the caller's credential has not
/// expired yet.
fn capped_lifetime(now: Timestamp, Ttl(requested): Ttl, callers_end: Option<Timestamp>) -> u32 {
    let remaining = callers_end.map(|end| end.as_second().saturating_sub(now.as_second()));
    let remaining = remaining.map_or(requested, |remaining| {
        u32::try_from(remaining).unwrap_or(requested)
    });
    requested.min(remaining.max(1))
}

/// The relay that accepts the credentials.
struct Relay<'a> {
    realm: &'a str,
    domain: &'a str,
    port: u16,
    tls_port: u16,
}

/// The configured relay. Values that are not set default to the project's cluster domain.
fn relay_of<'a>(app: &'a App, project: &Project) -> Option<Relay<'a>> {
    let turn = &app.config.turn;
    let cluster = region_of(app, project).map(|region| region.domain.as_str());
    let domain = turn.domain.as_deref().or(cluster)?;
    Some(Relay {
        realm: turn.realm.as_deref().or(cluster).unwrap_or(domain),
        domain,
        port: turn.port,
        tls_port: turn.tls_port,
    })
}

impl Relay<'_> {
    /// UDP first, TLS over TCP last: from the fastest to the one that passes every firewall.
    fn urls(&self) -> Vec<String> {
        let Self {
            domain,
            port,
            tls_port,
            ..
        } = self;
        vec![
            format!("turn:{domain}:{port}?transport=udp"),
            format!("turn:{domain}:{port}?transport=tcp"),
            format!("turns:{domain}:{tls_port}?transport=udp"),
            format!("turns:{domain}:{tls_port}?transport=tcp"),
        ]
    }
}

async fn note(app: &App, project: &Project, now: Timestamp) -> HandlerResult<()> {
    let one = TurnUsage {
        credentials: 1,
        ..TurnUsage::default()
    };
    let mut tx = app.store.begin().await?;
    usage::add_turn(&mut tx, project.id, now, &one).await?;
    tx.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn parse(seconds: u32) -> HandlerResult<Ttl> {
        Ttl::parse(IssueTurnCredential {
            ttl_seconds: Some(seconds),
        })
    }

    /// TU-1.
    #[test]
    fn tu_1_a_ttl_is_from_one_second_to_an_hour() {
        assert_eq!(
            Ttl::parse(IssueTurnCredential::default()).unwrap(),
            Ttl(600)
        );
        assert_eq!(parse(1).unwrap(), Ttl(1));
        assert_eq!(parse(3600).unwrap(), Ttl(3600));
        for bad in [0, 3601, u32::MAX] {
            let refusal = parse(bad).unwrap_err();
            assert_eq!(refusal.problem().field.as_deref(), Some("ttlSeconds"));
        }
    }

    #[test]
    fn a_credential_does_not_outlive_its_caller() {
        assert_eq!(capped_lifetime(at(100), Ttl(600), None), 600);
        assert_eq!(capped_lifetime(at(100), Ttl(600), Some(at(10_000))), 600);
        assert_eq!(capped_lifetime(at(100), Ttl(600), Some(at(160))), 60);
        let late = at(100) + jiff::SignedDuration::from_millis(900);
        assert_eq!(capped_lifetime(late, Ttl(600), Some(late)), 1);
    }
}
