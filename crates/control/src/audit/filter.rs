//! The filters of audit logs in queries.

use store::Period;
use store::audit::{Filter, FilterActor};

use crate::http_api::extract::Query;
use crate::http_api::problem::{HandlerResult, bad};

/// The filters of a query, checked.
#[derive(Debug)]
pub(crate) struct AuditFilter {
    action: Option<String>,
    actor: Option<FilterActor>,
    target: Option<String>,
    period: Period,
}

impl AuditFilter {
    /// Removes `action`, `target`, `start` and `end`.
    pub(crate) fn from_query(query: &mut Query) -> HandlerResult<Self> {
        let action = query.text("action");
        if action.as_deref().is_some_and(|name| !is_action(name)) {
            let detail = "action is not the name of an action such as member.changed";
            return Err(bad("action", detail));
        }
        let target = query.text("target");
        if target.as_deref().is_some_and(|id| !is_id(id)) {
            return Err(bad("target", "target is not the id of an object"));
        }
        let start = query.time("start")?;
        let end = query.time("end")?;
        if let (Some(start), Some(end)) = (start, end)
            && start >= end
        {
            return Err(bad("start", "start is not before end"));
        }
        Ok(Self {
            action,
            actor: None,
            target,
            period: Period { start, end },
        })
    }

    /// Also removes `actor`, for a log with many of them.
    pub(crate) fn with_actor(self, query: &mut Query) -> HandlerResult<Self> {
        let actor = match query.text("actor").as_deref() {
            None => None,
            Some(PLATFORM) => Some(FilterActor::Platform),
            Some(id) => {
                let detail = "actor is neither the id of a user nor platform";
                let user = id.parse().map_err(|_| bad("actor", detail))?;
                Some(FilterActor::User(user))
            }
        };
        Ok(Self { actor, ..self })
    }

    /// The filter of the database.
    pub(crate) fn stored(&self) -> Filter<'_> {
        Filter {
            action: self.action.as_deref(),
            actor: self.actor,
            target: self.target.as_deref(),
            period: self.period,
        }
    }
}

fn is_action(name: &str) -> bool {
    let is_in_name = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.');
    (1..=MAX_BYTES).contains(&name.len()) && name.bytes().all(is_in_name)
}

/// Kinds of objects have ids with different prefixes.
fn is_id(id: &str) -> bool {
    let is_in_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_BYTES).contains(&id.len()) && id.bytes().all(is_in_id)
}

/// Longer than each action and each id.
const MAX_BYTES: usize = 64;
/// The actor of entries without a user.
const PLATFORM: &str = "platform";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> HandlerResult<AuditFilter> {
        let mut query = Query::parse(text)?;
        let filter = AuditFilter::from_query(&mut query)?.with_actor(&mut query)?;
        query.finish()?;
        Ok(filter)
    }

    #[test]
    fn a_filter_has_the_values_of_its_query() {
        let text = "action=member.changed&actor=platform&target=usr_1&start=2026-03-01T00:00:00Z";
        let filter = read(text).unwrap();
        let stored = filter.stored();
        assert_eq!(stored.action, Some("member.changed"));
        assert_eq!(stored.actor, Some(FilterActor::Platform));
        assert_eq!(stored.target, Some("usr_1"));
        let start = "2026-03-01T00:00:00Z".parse().unwrap();
        let period = Period {
            start: Some(start),
            end: None,
        };
        assert_eq!(stored.period, period);
        let empty = read("").unwrap();
        assert_eq!(empty.stored().actor, None);
        assert_eq!(empty.stored().period, Period::default());
    }

    #[test]
    fn errors_name_the_malformed_filter() {
        let long = format!("target={}", "a".repeat(MAX_BYTES + 1));
        for (text, field) in [
            ("action=", "action"),
            ("action=Member", "action"),
            ("action=member.%25", "action"),
            ("actor=", "actor"),
            ("actor=ada", "actor"),
            ("actor=wks_01h455vb4pex5vsknk084sn02q", "actor"),
            ("target=", "target"),
            ("target=a%20b", "target"),
            (long.as_str(), "target"),
            ("start=yesterday", "start"),
            ("end=2026-03-01", "end"),
            (
                "start=2026-03-01T00:00:00Z&end=2026-03-01T00:00:00Z",
                "start",
            ),
            ("since=1", "since"),
        ] {
            let refusal = read(text).unwrap_err();
            assert_eq!(refusal.problem().status, 400, "{text}");
            assert_eq!(refusal.problem().field.as_deref(), Some(field), "{text}");
        }
    }
}
