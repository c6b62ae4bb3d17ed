#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` at the call reads better without `&`"
)]

mod create;
mod reach;
mod shape;

use serde_json::json;

use super::*;
use crate::id::{ClientId, TunnelId};

fn boundary(tunnels: Value) -> Boundary {
    let resources = json!({ "tunnels": tunnels });
    Boundary::check(&resources, false).unwrap();
    Boundary::parse(Some(&resources), false)
}

fn fault(resources: &Value) -> ParamError {
    let error = Boundary::check(resources, false).unwrap_err();
    let refusing = Boundary::parse(Some(resources), false);
    assert!(
        matches!(refusing.0, BoundaryExpression::Nowhere),
        "{resources} fails closed"
    );
    error
}

fn tunnel(name: &str) -> Tunnel {
    let mut tunnel = Tunnel::online(
        TunnelId::new(1, [1; 10]),
        ClientId::new(1, [1; 10]),
        published(name),
    );
    tunnel.project_id = Some("p1".to_owned());
    tunnel.user_id = Some("u1".to_owned());
    tunnel
}

fn published(name: &str) -> TunnelProperties {
    TunnelProperties {
        name: Some(name.parse().unwrap()),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        ..TunnelProperties::default()
    }
    .resolve()
    .unwrap()
}

fn connects(boundary: &Boundary, path: &str) -> Result<(), BoundaryRefusal> {
    let path = NormalPath::parse(path).unwrap();
    boundary
        .connect("p1", Some("w1"), &tunnel("web"), Some(&path))
        .map_err(|refusal| refusal.outside)
}

fn connects_at(boundary: &Boundary, project: &str, workspace: Option<&str>) -> bool {
    boundary
        .connect(project, workspace, &tunnel("web"), None)
        .is_ok()
}
