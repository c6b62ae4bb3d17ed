//! Traffic of a project over time.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::control::records::{
    DURATION_BOUNDS, Resolution, TRAFFIC, Traffic, TrafficPoint, TrafficSeries,
};
use axum::extract::State;
use axum::{Json, Router};
use jiff::SignedDuration;
use store::traffic::{self, BUCKETS, MAX_NAMES, Point, REST, TrafficStep};
use types::permission::Permission;
use types::tunnel::TunnelName;

use crate::app::App;
use crate::caller::{Caller, LogsRead, access};
use crate::http_api::extract::{Query, Segment};
use crate::http_api::problem::{HandlerResult, bad};
use crate::http_api::route::OperationRouter as _;
use crate::logs::timeline::{Range, rfc3339};

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new().serve(TRAFFIC, get)
}

/// Retention of the intervals.
pub(crate) const fn retention_of(step: TrafficStep) -> SignedDuration {
    match step {
        TrafficStep::Minute => DAY,
        TrafficStep::Hour => MONTH,
    }
}

async fn get(
    caller: Caller<LogsRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    mut query: Query,
) -> HandlerResult<Json<Traffic>> {
    let selection = Selection::from_query(&app, &mut query)?;
    query.finish()?;
    let permission = Permission::NetworkStreamsReadOnly;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, permission).await?;
    let project = found.project.id;
    let span = (selection.step, selection.range.period());
    let series = match &selection.series {
        SeriesSelection::Project => {
            let points = traffic::series(&mut conn, project, span, "", selection.intervals);
            vec![series(None, points.await?)]
        }
        SeriesSelection::Tunnel(name) => {
            let points = traffic::series(&mut conn, project, span, name, selection.intervals);
            vec![series(Some(name.clone()), points.await?)]
        }
        SeriesSelection::EachTunnel => {
            let rows = selection.intervals.saturating_mul(MAX_NAMES + 1);
            by_tunnel(traffic::tunnels(&mut conn, project, span, rows).await?)
        }
    };
    Ok(Json(Traffic {
        start: rfc3339(selection.range.start),
        end: rfc3339(selection.range.end),
        resolution: match selection.step {
            TrafficStep::Minute => Resolution::Minute,
            TrafficStep::Hour => Resolution::Hour,
        },
        bucket_bounds: DURATION_BOUNDS.to_vec(),
        series,
    }))
}

/// The requested series.
struct Selection {
    /// Whole intervals.
    range: Range,
    step: TrafficStep,
    /// Number of intervals in the range.
    intervals: u32,
    series: SeriesSelection,
}

enum SeriesSelection {
    Project,
    Tunnel(String),
    EachTunnel,
}

impl Selection {
    fn from_query(app: &App, query: &mut Query) -> HandlerResult<Self> {
        let range = Range::from_query(query, app.now())?;
        let steps = [("minute", TrafficStep::Minute), ("hour", TrafficStep::Hour)];
        let step = query.keyword("resolution", &steps)?;
        let is_by_tunnel = query.keyword("by", &[("project", false), ("tunnel", true)])?;
        let tunnel = query.text("tunnel");
        let is_short = range.length() <= DAY;
        let step = step.unwrap_or(if is_short {
            TrafficStep::Minute
        } else {
            TrafficStep::Hour
        });
        if step == TrafficStep::Minute && !is_short {
            let detail = "resolution: minutes are kept for a day; choose hours or a shorter range";
            return Err(bad("resolution", detail));
        }
        let range = range.to_whole(step.seconds());
        let intervals = range.length().as_secs() / step.seconds();
        let series = match (is_by_tunnel, tunnel) {
            (Some(false), Some(_)) => {
                let detail = "tunnel: cannot be combined with by=project";
                return Err(bad("tunnel", detail));
            }
            // The text for all other visits is not a name, and is refused.
            (Some(true) | None, Some(name)) => match name.parse::<TunnelName>() {
                Ok(name) => SeriesSelection::Tunnel(name.into()),
                Err(_) => return Err(bad("tunnel", "tunnel: is not the name of a tunnel")),
            },
            (Some(true), None) if intervals > MAX_INTERVALS_BY_TUNNEL => {
                let most = MAX_INTERVALS_BY_TUNNEL;
                let detail = format!("by: the range has more than {most} intervals");
                return Err(bad("by", detail));
            }
            (Some(true), None) => SeriesSelection::EachTunnel,
            (Some(false) | None, None) => SeriesSelection::Project,
        };
        Ok(Self {
            range,
            step,
            intervals: u32::try_from(intervals).unwrap_or_default(),
            series,
        })
    }
}

/// A series for each name, the busiest first, and one for the rest.
fn by_tunnel(points: Vec<Point>) -> Vec<TrafficSeries> {
    let mut names: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    for point in points {
        names.entry(point.tunnel.clone()).or_default().push(point);
    }
    let mut rest = names.remove(REST).unwrap_or_default();
    let visits = |points: &[Point]| -> i64 {
        let counts = points.iter().map(|point| point.traffic.requests);
        counts.fold(0, i64::saturating_add)
    };
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|(_, points)| std::cmp::Reverse(visits(points)));
    // Each interval has a limited number of names, but they may differ.
    let shown = usize::try_from(MAX_NAMES).unwrap_or_default();
    let more = names.split_off(shown.min(names.len()));
    rest.extend(more.into_iter().flat_map(|(_, points)| points));
    let named = names
        .into_iter()
        .map(|(name, points)| series(Some(name), points));
    let rest = (!rest.is_empty()).then(|| series(None, merged(rest)));
    named.chain(rest).collect()
}

/// One point for each interval, oldest first.
fn merged(points: Vec<Point>) -> Vec<Point> {
    let mut sums: BTreeMap<_, Point> = BTreeMap::new();
    for point in points {
        match sums.get_mut(&point.starts_at) {
            Some(sum) => sum.traffic.merge(&point.traffic),
            None => {
                sums.insert(point.starts_at, point);
            }
        }
    }
    sums.into_values().collect()
}

fn series(tunnel: Option<String>, points: Vec<Point>) -> TrafficSeries {
    let points = points.into_iter().map(|point| TrafficPoint {
        at: rfc3339(point.starts_at),
        requests: point.traffic.requests,
        errors: point.traffic.errors,
        denied: point.traffic.denied,
        upstream_bytes: point.traffic.upstream_bytes,
        downstream_bytes: point.traffic.downstream_bytes,
        durations: point.traffic.durations.to_vec(),
    });
    TrafficSeries {
        tunnel,
        points: points.collect(),
    }
}

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// The longest range of this operation.
const MONTH: SignedDuration = SignedDuration::from_hours(31 * 24);
/// Limit of intervals with a point for each tunnel: a response has at most 20,200 points, which is
/// some 4 MiB.
const MAX_INTERVALS_BY_TUNNEL: i64 = 200;
/// The buckets of the store are those of the interface.
const _: () = assert!(DURATION_BOUNDS.len() + 1 == BUCKETS);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use store::traffic::Traffic as Counts;

    use super::*;

    fn point(minute: i64, tunnel: &str, requests: i64) -> Point {
        Point {
            starts_at: Timestamp::from_second(60 * minute).unwrap(),
            tunnel: tunnel.to_owned(),
            traffic: Counts {
                requests,
                ..Counts::default()
            },
        }
    }

    #[test]
    fn the_busiest_tunnels_come_first_and_the_rest_is_one_series() {
        let busy = (0..100).map(|number| point(1, &format!("t{number}"), 10));
        let mut points: Vec<_> = busy.collect();
        points.extend([
            point(1, "idle", 1),
            point(2, "idle", 2),
            point(2, "busy", 99),
        ]);
        points.extend([point(1, REST, 5), point(1, "other", 1)]);
        let all = by_tunnel(points);
        assert_eq!(all.len(), 101);
        assert_eq!(all[0].tunnel.as_deref(), Some("busy"));
        let rest = all.last().unwrap();
        assert_eq!(rest.tunnel, None);
        let counts: Vec<_> = rest.points.iter().map(|point| point.requests).collect();
        // One of the equally busy names, both idle ones, and the visits without a name.
        assert_eq!(counts, [17, 2]);
    }

    #[test]
    fn no_traffic_is_no_series_of_tunnels() {
        assert!(by_tunnel(Vec::new()).is_empty());
    }
}
