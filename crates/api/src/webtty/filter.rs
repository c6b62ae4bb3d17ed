//! Filters in `params` of the lists: strict parsing and matching.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::filter::{Filter, MAX_LIMIT, ParamError};

use super::{
    ControlRequest, ControlRequestFilter, GroupFilter, Session, SessionFilter, SessionGroup,
};

impl Filter for SessionFilter {
    const PARAMS_SCHEMA: &'static str = "ListWebttySessionsParams";

    /// Ended sessions stay in the list, so it grows with the age of the project.
    const DEFAULT_LIMIT: Option<u16> = Some(MAX_LIMIT);

    fn from_json(value: &Value, field: &str, _compat: bool) -> Result<Self, ParamError> {
        let filter: Self = read(value, field)?;
        time(filter.started_from.as_deref(), field, "started_from")?;
        time(filter.started_to.as_deref(), field, "started_to")?;
        Ok(filter)
    }
}

impl Filter for GroupFilter {
    const PARAMS_SCHEMA: &'static str = "ListWebttyGroupsParams";

    fn from_json(value: &Value, field: &str, _compat: bool) -> Result<Self, ParamError> {
        let filter: Self = read(value, field)?;
        time(filter.created_from.as_deref(), field, "created_from")?;
        time(filter.created_to.as_deref(), field, "created_to")?;
        Ok(filter)
    }
}

impl Filter for ControlRequestFilter {
    const PARAMS_SCHEMA: &'static str = "ListWebttyControlRequestsParams";

    fn from_json(value: &Value, field: &str, _compat: bool) -> Result<Self, ParamError> {
        read(value, field)
    }
}

impl SessionFilter {
    /// True if the session matches the whole filter.
    pub fn matches(&self, session: &Session) -> bool {
        let origin = session.context.as_ref();
        let origin = origin.and_then(|context| context.origin.as_ref());
        equal(self.server_id.as_ref(), session.server_id.as_ref())
            && equal(self.tunnel_id.as_ref(), Some(&session.tunnel_id))
            && equal(self.user_id.as_ref(), session.initiator_user_id.as_ref())
            && equal(self.group_id.as_ref(), session.group_id.as_ref())
            && equal(self.origin.as_ref(), origin)
            && self.status.is_none_or(|status| status == session.status)
            && within(
                &session.started_at,
                self.started_from.as_deref(),
                self.started_to.as_deref(),
            )
    }
}

impl GroupFilter {
    /// True if the group matches the whole filter.
    pub fn matches(&self, group: &SessionGroup) -> bool {
        let origin = group.context.as_ref();
        let origin = origin.and_then(|context| context.origin.as_ref());
        let initiator = group.initiator_user_id.as_ref();
        equal(self.initiator_user_id.as_ref(), initiator)
            && equal(self.origin.as_ref(), origin)
            && within(
                &group.created_at,
                self.created_from.as_deref(),
                self.created_to.as_deref(),
            )
    }
}

impl ControlRequestFilter {
    /// True if the request matches the whole filter.
    pub fn matches(&self, request: &ControlRequest) -> bool {
        let requester = request.requester_user_id.as_ref();
        self.status.is_none_or(|status| status == request.status)
            && equal(self.requester_user_id.as_ref(), requester)
    }
}

/// Parses a filter. An error names the invalid member.
fn read<F: DeserializeOwned>(value: &Value, field: &str) -> Result<F, ParamError> {
    let members = value
        .as_object()
        .ok_or_else(|| ParamError::new(field, "expected an object"))?;
    for (name, member) in members {
        let at = || format!("{field}.{name}");
        if !member.is_string() {
            return Err(ParamError::new(at(), "expected a string"));
        }
        let alone = Value::Object([(name.clone(), member.clone())].into_iter().collect());
        if let Err(error) = serde_json::from_value::<F>(alone) {
            let message = error.to_string();
            let known = !message.starts_with("unknown field");
            return Err(ParamError::new(
                at(),
                if known { &message } else { "unknown key" },
            ));
        }
    }
    serde_json::from_value(value.clone()).map_err(|error| ParamError::new(field, error.to_string()))
}

fn time(value: Option<&str>, field: &str, name: &str) -> Result<(), ParamError> {
    match value.map(str::parse::<Timestamp>) {
        Some(Err(_)) => Err(ParamError::new(
            format!("{field}.{name}"),
            "expected an RFC 3339 time",
        )),
        _ => Ok(()),
    }
}

fn equal(wanted: Option<&String>, actual: Option<&String>) -> bool {
    wanted.is_none() || wanted == actual
}

/// True if a time is within two others, all of them RFC 3339.
fn within(at: &str, from: Option<&str>, to: Option<&str>) -> bool {
    let read = |text: &str| text.parse::<Timestamp>().ok();
    let at = read(at);
    from.is_none_or(|from| at >= read(from)) && to.is_none_or(|to| at <= read(to))
}

#[cfg(test)]
mod tests {
    use types::filter::ListParams;

    use super::*;

    #[test]
    fn an_invalid_filter_names_the_member() {
        for (params, field) in [
            (r#"{"filters":{"status":"open"}}"#, "filters.status"),
            (r#"{"filters":{"status":1}}"#, "filters.status"),
            (r#"{"filters":{"colour":"red"}}"#, "filters.colour"),
            (
                r#"{"filters":{"started_from":"now"}}"#,
                "filters.started_from",
            ),
            (r#"{"filters":[]}"#, "filters"),
            (r#"{"limit":0}"#, "limit"),
        ] {
            let read = ListParams::<SessionFilter>::parse(params, false);
            assert_eq!(read.unwrap_err().field, field, "{params}");
        }
        let read = ListParams::<SessionFilter>::parse(
            r#"{"limit":2,"filters":{"status":"active"}}"#,
            false,
        );
        assert_eq!(read.unwrap().limit, Some(2));
    }

    #[test]
    fn times_are_compared_as_times() {
        let at = "2026-01-02T03:04:05.000Z";
        assert!(within(at, Some("2026-01-02T04:04:05+01:00"), None));
        assert!(within(at, None, Some("2026-01-02T03:04:05Z")));
        assert!(!within(at, Some("2026-01-02T03:04:06Z"), None));
        assert!(!within(at, None, Some("2026-01-02T03:04:04.999Z")));
    }
}
