//! The intersection of two limits never allows more than one of them.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use types::id::{ClientId, TunnelId};
use types::tunnel::{Tunnel, TunnelProperties};

use super::*;

const PROJECTS: [&str; 3] = ["p1", "p2", "p3"];

fn permissions() -> impl Strategy<Value = Option<Permissions>> {
    option::of(
        vec(prop::sample::select(Permission::ALL.to_vec()), 0..6)
            .prop_map(|some| some.into_iter().collect()),
    )
}

/// Boundaries of several shapes, including an invalid one.
fn resources() -> impl Strategy<Value = Option<Value>> {
    let projects = prop::sample::subsequence(PROJECTS.to_vec(), 1..=3);
    let leaf = (
        projects,
        option::of((any::<bool>(), any::<bool>(), any::<bool>())),
    )
        .prop_map(|(projects, scopes)| match scopes {
            None => json!({"projects": projects}),
            Some((list, connect, create)) => json!({
                "projects": projects,
                "scopes": {"list": list, "connect": connect, "create": create},
            }),
        });
    let tree = prop_oneof![
        4 => leaf.clone(),
        1 => vec(leaf.clone(), 1..3).prop_map(|all| json!({"AND": all})),
        1 => vec(leaf, 1..3).prop_map(|any| json!({"OR": any})),
        1 => Just(json!({"AND": []})),
    ];
    option::of(tree.prop_map(|tree| json!({"tunnels": tree})))
}

fn limits() -> impl Strategy<Value = (Limits, Option<Value>)> {
    (permissions(), resources(), option::of(0_i64..100)).prop_map(|(held, resources, end)| {
        let boundary = Boundary::parse(resources.as_ref(), false);
        (Limits::new(held, boundary, end), resources)
    })
}

/// All decisions of a boundary for a project: listing, dialling and creating.
fn decisions(boundary: &Boundary) -> Vec<[bool; 4]> {
    let (id, client) = (TunnelId::new(1, [1; 10]), ClientId::new(1, [1; 10]));
    let tunnel = Tunnel::online(id, client, TunnelProperties::default());
    let decide = |project: &&str| {
        let mut properties = TunnelProperties::default();
        [
            boundary.reaches(project, None),
            boundary.may_list(project, None),
            boundary.connect(project, None, &tunnel, None).is_ok(),
            boundary.create(project, None, &mut properties).is_ok(),
        ]
    };
    PROJECTS.iter().map(decide).collect()
}

proptest! {
    #[test]
    fn cp_11_an_intersection_allows_only_permissions_of_both_limits(
        (one, _) in limits(),
        (other, _) in limits(),
        now in 0_i64..100,
    ) {
        let both = one.and(&other);
        for permission in Permission::ALL.iter().copied() {
            prop_assert_eq!(
                both.allows(permission),
                one.allows(permission) && other.allows(permission)
            );
        }
        prop_assert_eq!(both.is_expired(now), one.is_expired(now) || other.is_expired(now));
        prop_assert!(both.permissions_are_within(&one) && both.permissions_are_within(&other));
        prop_assert!(!both.outlives(&one) && !both.outlives(&other));
        let of_one = decisions(one.boundary());
        let of_other = decisions(other.boundary());
        for ((both, one), other) in decisions(both.boundary()).iter().zip(of_one).zip(of_other) {
            for ((both, one), other) in both.iter().zip(one).zip(other) {
                prop_assert_eq!(*both, one && other);
            }
        }
    }

    #[test]
    fn cp_11_the_written_form_of_both_boundaries_decides_as_both_do(
        (one, written) in limits(),
        (other, also_written) in limits(),
    ) {
        let both = both_resources(written, also_written);
        let read = Boundary::parse(both.as_ref(), false);
        let both = one.and(&other);
        prop_assert_eq!(decisions(&read), decisions(both.boundary()));
    }
}

#[test]
fn an_unknown_stored_permission_grants_nothing() {
    let known = Permission::TunnelsResourcesReadOnly;
    let stored = [known.as_str(), "tunnels.future.read-only"];
    let limits = Limits::of_stored(Some(&stored), None, Some("w1"), None);
    assert_eq!(limits.permissions(), Some([known].into_iter().collect()));
    assert!(limits.boundary().reaches_workspace("w1"));
    assert!(!limits.boundary().reaches_workspace("w2"));

    let unreadable = json!({"tunnels": {"future": true}});
    let limits = Limits::of_stored::<&str>(None, Some(&unreadable), None, None);
    assert!(!limits.boundary().reaches("p1", None));
}
