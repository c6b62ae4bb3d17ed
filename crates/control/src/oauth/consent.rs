//! The texts of the consent page: the permissions that a client gets, in groups that are easy to
//! read.

use types::permission::{CONTROL_PLANE_BUNDLES, Permission, Permissions};

use super::metadata::manages_access;

/// Permissions that belong together, with a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) permissions: Vec<Permission>,
    /// True if the page must emphasise the group, because it permits the client to grant access to
    /// others.
    pub(super) is_grave: bool,
}

/// Groups the permissions. Access management comes first and is emphasised. The largest bundle of
/// the web interface that is requested in full comes next, and then the rest. Each permission
/// appears once.
pub(super) fn groups(permissions: Permissions) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut rest: Vec<_> = permissions.iter().collect();
    let mut take = |title, is_grave, wanted: &dyn Fn(Permission) -> bool| {
        let taken: Vec<_> = rest
            .extract_if(.., |permission| wanted(*permission))
            .collect();
        if !taken.is_empty() {
            groups.push(Group {
                title,
                permissions: taken,
                is_grave,
            });
        }
    };
    take("Give access to others in your name", true, &manages_access);
    let whole = CONTROL_PLANE_BUNDLES
        .iter()
        .filter(|bundle| {
            bundle
                .permissions
                .iter()
                .all(|one| permissions.contains(*one))
        })
        .max_by_key(|bundle| bundle.permissions.len());
    let others = match whole {
        Some(bundle) => {
            take(bundle.title, false, &|one| {
                bundle.permissions.contains(&one)
            });
            "Also"
        }
        None => "In your workspaces",
    };
    take(others, false, &|_| true);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(permissions: Permissions) -> Vec<(&'static str, usize, bool)> {
        let groups = groups(permissions);
        let shown: usize = groups.iter().map(|group| group.permissions.len()).sum();
        assert_eq!(shown, permissions.iter().count(), "each is shown once");
        let line = |group: &Group| (group.title, group.permissions.len(), group.is_grave);
        groups.iter().map(line).collect()
    }

    /// CP-14: the bundles are unchanged, and access management is a separate group.
    #[test]
    fn cp_14_scopes_are_grouped_by_the_bundles() {
        for bundle in CONTROL_PLANE_BUNDLES {
            let permissions: Permissions = bundle.permissions.iter().copied().collect();
            let count = bundle.permissions.len();
            assert_eq!(titles(permissions), [(bundle.title, count, false)]);
        }
        let all = titles(Permissions::all());
        assert_eq!(all[0], ("Give access to others in your name", 3, true));
        assert_eq!(all[1].0, CONTROL_PLANE_BUNDLES[0].title);
        assert_eq!((all[2].0, all.len()), ("Also", 3));
        let one = Permissions::NONE.with(Permission::NetworkWebhooksReadOnly);
        assert_eq!(titles(one), [("In your workspaces", 1, false)]);
        assert!(groups(Permissions::NONE).is_empty());
    }
}
