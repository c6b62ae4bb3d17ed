//! `resources.tunnels`: the projects, tunnels and paths that a credential may access (EN-7, ED-1c,
//! ED-7).
//!
//! ```text
//! resources = { tunnels: tree }
//! tree      = leaf | { AND: [tree, …] } | { OR: [tree, …] }
//! leaf      = { projects: [id, …] xor workspaces: [id, …], scopes: { tunnels: actions } }
//! actions   = { create: bool | { filters }, connect: bool | { filters, params }, list: bool | { filters, select } }
//! filters   = { tunnel field: condition, … } | { AND: [filters, …] } | { OR: [filters, …] }
//! params    = { path: text condition } | { AND: [params, …] } | { OR: [params, …] }
//! condition = value | { exact: value } | { oneof: [value, …] } | { regex: pattern }
//! ```
//!
//! A leaf without `scopes` allows every action in its projects. With `scopes`, an action that is
//! absent or `false` is refused. A wrong shape anywhere, or an empty list, results in a boundary
//! that refuses everything, so an unknown restriction is never ignored. The API, the edge and the
//! agents use the same evaluator.

mod condition;
mod create;
mod field;
mod grammar;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use self::condition::{Fields, TextCondition};
use self::field::Subject;
pub use self::grammar::MAX_PATTERNS;
use crate::filter::ParamError;
use crate::path::NormalPath;
use crate::tunnel::{Tunnel, TunnelProperties};

/// The projects, tunnels and paths that a credential may access. Permission and boundary must both
/// allow an action. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Boundary(BoundaryExpression);

#[derive(Clone, Debug)]
enum BoundaryExpression {
    Everywhere,
    Nowhere,
    Within(Arc<Tree<Leaf>>),
}

impl Boundary {
    /// Returns the boundary without restrictions: everything that the permissions allow.
    pub const fn none() -> Self {
        Self(BoundaryExpression::Everywhere)
    }

    /// Returns the boundary that refuses everything.
    pub const fn refuse_everything() -> Self {
        Self(BoundaryExpression::Nowhere)
    }

    /// Parses the `resources` claim. An absent claim does not restrict; a wrong shape anywhere
    /// results in a boundary that refuses everything.
    pub fn parse(resources: Option<&Value>, compat: bool) -> Self {
        match resources.map(|resources| grammar::parse(resources, compat)) {
            None => Self::none(),
            Some(Ok(tree)) => Self(BoundaryExpression::Within(Arc::new(tree))),
            Some(Err(_)) => Self::refuse_everything(),
        }
    }

    /// Validates a `resources` value for minting; the error names the field.
    pub fn check(resources: &Value, compat: bool) -> Result<(), ParamError> {
        grammar::parse(resources, compat).map(drop)
    }

    /// Returns the intersection of both boundaries, so that a delegated token never has more access
    /// than its parent.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (BoundaryExpression::Nowhere, _) | (_, BoundaryExpression::Nowhere) => {
                Self::refuse_everything()
            }
            (BoundaryExpression::Everywhere, _) => other.clone(),
            (_, BoundaryExpression::Everywhere) => self.clone(),
            (BoundaryExpression::Within(a), BoundaryExpression::Within(b)) => {
                let both = Tree::And(vec![Tree::clone(a), Tree::clone(b)]);
                Self(BoundaryExpression::Within(Arc::new(both)))
            }
        }
    }

    /// True if the token contains a tunnel resource at all (EN-5d).
    pub fn has_tunnel_resource(&self) -> bool {
        !matches!(self.0, BoundaryExpression::Everywhere)
    }

    /// True if the action is allowed under some conditions, whatever they require of project,
    /// tunnel and path.
    pub fn allows_somewhere(&self, action: Action) -> bool {
        self.evaluate(|leaf| leaf.rule(action).map(drop)).is_ok()
    }

    /// True if listing is allowed, and creating and connecting are refused (EN-5c).
    pub fn watch_only_shape(&self) -> bool {
        self.allows_somewhere(Action::List)
            && !self.allows_somewhere(Action::Create)
            && !self.allows_somewhere(Action::Connect)
    }

    /// True if the boundary has conditions on paths. The request's path is then normalised before
    /// [`connect`](Self::connect) and forwarded in that form.
    pub fn needs_path(&self) -> bool {
        match &self.0 {
            BoundaryExpression::Everywhere | BoundaryExpression::Nowhere => false,
            BoundaryExpression::Within(tree) => tree.any_leaf(&|leaf: &Leaf| {
                let connect = leaf
                    .scopes
                    .as_ref()
                    .and_then(|scopes| scopes.connect.as_ref());
                connect.is_some_and(|connect| connect.path.is_some())
            }),
        }
    }

    /// True if the boundary includes the project, whatever actions it allows there.
    pub fn reaches(&self, project: &str, workspace: Option<&str>) -> bool {
        self.evaluate(|leaf| leaf.at(project, workspace).map(drop))
            .is_ok()
    }

    /// True if the boundary includes the workspace as a whole, not only single projects of it.
    pub fn reaches_workspace(&self, workspace: &str) -> bool {
        self.evaluate(|leaf| match leaf.coverage {
            Some(Coverage::Projects(_)) => Err(BoundaryRefusal::ProjectOrWorkspace),
            _ => leaf.at("", Some(workspace)).map(drop),
        })
        .is_ok()
    }

    /// True if the boundary allows some action for whole projects. A boundary that covers only
    /// single tunnels or paths does not permit other changes to the project.
    pub fn is_of_projects(&self) -> bool {
        self.evaluate(|leaf| {
            if leaf.has_whole_action() {
                Ok(())
            } else {
                Err(BoundaryRefusal::FilterMismatch)
            }
        })
        .is_ok()
    }

    /// True if anything may be listed in the project.
    pub fn may_list(&self, project: &str, workspace: Option<&str>) -> bool {
        self.evaluate(|leaf| leaf.at(project, workspace)?.rule(Action::List).map(drop))
            .is_ok()
    }

    /// True if everything may be listed in the project, without a filter or a selection.
    pub fn may_list_all(&self, project: &str, workspace: Option<&str>) -> bool {
        self.evaluate(|leaf| {
            let scopes = leaf.at(project, workspace)?.rule(Action::List)?;
            match scopes.and_then(|scopes| scopes.list.as_ref()) {
                Some(list) if list.filters.is_some() || list.select.is_some() => {
                    Err(BoundaryRefusal::FilterMismatch)
                }
                _ => Ok(()),
            }
        })
        .is_ok()
    }

    /// Returns the visible part of a tunnel.
    pub fn list(&self, project: &str, workspace: Option<&str>, tunnel: &Tunnel) -> ListScope {
        match &self.0 {
            BoundaryExpression::Everywhere => ListScope::Visible { select: None },
            BoundaryExpression::Nowhere => ListScope::Hidden,
            BoundaryExpression::Within(tree) => list_in(tree, &|leaf| {
                let scopes = leaf.at(project, workspace)?.rule(Action::List)?;
                let list = scopes.and_then(|scopes| scopes.list.as_ref());
                list.map_or(Ok(()), |list| {
                    filters_hold(list.filters.as_ref(), Subject::live(tunnel))
                })?;
                Ok(list.and_then(|list| list.select.clone()))
            }),
        }
    }

    /// Checks that a stream may be opened to the tunnel, at the path for HTTP. Without a path, a
    /// condition on the path is not met.
    pub fn connect(
        &self,
        project: &str,
        workspace: Option<&str>,
        tunnel: &Tunnel,
        path: Option<&NormalPath>,
    ) -> Result<(), Refusal> {
        self.evaluate(|leaf| {
            let scopes = leaf.at(project, workspace)?.rule(Action::Connect)?;
            let Some(connect) = scopes.and_then(|scopes| scopes.connect.as_ref()) else {
                return Ok(());
            };
            filters_hold(connect.filters.as_ref(), Subject::live(tunnel))?;
            let path_holds = connect.path.as_ref().is_none_or(|condition| {
                path.is_some_and(|path| {
                    condition.holds(&|text: &TextCondition| text.holds(path.as_str()))
                })
            });
            if path_holds {
                Ok(())
            } else {
                Err(BoundaryRefusal::Path)
            }
        })
        .map_err(|outside| Refusal {
            outside,
            field: None,
        })
    }

    /// Checks that a tunnel with these properties may be created. It sets properties that the
    /// boundary fixes and the client left open, and refuses contradicting ones. Call it before
    /// [`TunnelProperties::resolve`]. After an error the properties are unchanged.
    pub fn create(
        &self,
        project: &str,
        workspace: Option<&str>,
        properties: &mut TunnelProperties,
    ) -> Result<(), Refusal> {
        match &self.0 {
            BoundaryExpression::Everywhere => Ok(()),
            BoundaryExpression::Nowhere => Err(Refusal {
                outside: BoundaryRefusal::Malformed,
                field: None,
            }),
            BoundaryExpression::Within(tree) => {
                *properties = create::settle(
                    &create::demand(tree, project, workspace),
                    properties.clone(),
                )?;
                Ok(())
            }
        }
    }

    /// Checks that a tunnel that is online may be closed. Its owner opened it with `create`; the
    /// same action and the same filters are required here.
    pub fn close(
        &self,
        project: &str,
        workspace: Option<&str>,
        tunnel: &Tunnel,
    ) -> Result<(), Refusal> {
        self.evaluate(|leaf| {
            let scopes = leaf.at(project, workspace)?.rule(Action::Create)?;
            let create = scopes.and_then(|scopes| scopes.create.as_ref());
            let filters = create.and_then(|create| create.filters.as_ref());
            filters_hold(filters, Subject::live(tunnel))
        })
        .map_err(|outside| Refusal {
            outside,
            field: None,
        })
    }

    fn evaluate(
        &self,
        judge: impl Fn(&Leaf) -> Result<(), BoundaryRefusal>,
    ) -> Result<(), BoundaryRefusal> {
        match &self.0 {
            BoundaryExpression::Everywhere => Ok(()),
            BoundaryExpression::Nowhere => Err(BoundaryRefusal::Malformed),
            BoundaryExpression::Within(tree) => tree.first_refusal(&judge),
        }
    }
}

/// Action that a boundary allows or refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a tunnel.
    Create,
    /// Open a stream to a tunnel.
    Connect,
    /// List tunnels.
    List,
}

/// Visible part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// Nothing.
    Hidden,
    /// The object; with `select`, only these fields of it.
    Visible {
        /// JSON names of the fields.
        select: Option<BTreeSet<String>>,
    },
}

impl ListScope {
    /// Returns the visible part of the object, if any.
    pub fn apply(&self, mut object: Value) -> Option<Value> {
        match self {
            Self::Hidden => None,
            Self::Visible { select: None } => Some(object),
            Self::Visible {
                select: Some(fields),
            } => {
                if let Some(members) = object.as_object_mut() {
                    members.retain(|name, _| fields.contains(name));
                }
                Some(object)
            }
        }
    }
}

/// A refusal by the boundary. Only `field` is meant for the caller, the rest is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("outside the boundary of the token ({outside})")]
pub struct Refusal {
    /// The first part of the boundary that refused.
    pub outside: BoundaryRefusal,
    /// Property that contradicts the boundary, if any.
    pub field: Option<String>,
}

/// Part of a boundary that refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundaryRefusal {
    /// The boundary is malformed and refuses everything.
    #[error("shape")]
    Malformed,
    /// Another project or workspace.
    #[error("place")]
    ProjectOrWorkspace,
    /// The action is not among the scopes.
    #[error("action")]
    Action,
    /// The tunnel does not match the filters.
    #[error("filters")]
    FilterMismatch,
    /// The path does not match.
    #[error("path")]
    Path,
}

/// A formula of AND and OR over leaves.
#[derive(Clone, Debug)]
enum Tree<L> {
    Leaf(L),
    And(Vec<Self>),
    Or(Vec<Self>),
}

impl<L> Tree<L> {
    fn holds(&self, leaf_holds: &impl Fn(&L) -> bool) -> bool {
        match self {
            Self::Leaf(leaf) => leaf_holds(leaf),
            Self::And(all) => all.iter().all(|tree| tree.holds(leaf_holds)),
            Self::Or(any) => any.iter().any(|tree| tree.holds(leaf_holds)),
        }
    }

    /// Returns the first refusal.
    fn first_refusal(
        &self,
        judge: &impl Fn(&L) -> Result<(), BoundaryRefusal>,
    ) -> Result<(), BoundaryRefusal> {
        match self {
            Self::Leaf(leaf) => judge(leaf),
            Self::And(all) => all.iter().try_for_each(|tree| tree.first_refusal(judge)),
            Self::Or(any) => {
                let mut first = None;
                for tree in any {
                    match tree.first_refusal(judge) {
                        Ok(()) => return Ok(()),
                        Err(outside) => _ = first.get_or_insert(outside),
                    }
                }
                Err(first.unwrap_or(BoundaryRefusal::Malformed))
            }
        }
    }

    fn any_leaf(&self, is: &impl Fn(&L) -> bool) -> bool {
        match self {
            Self::Leaf(leaf) => is(leaf),
            Self::And(trees) | Self::Or(trees) => trees.iter().any(|tree| tree.any_leaf(is)),
        }
    }
}

#[derive(Clone, Debug)]
struct Leaf {
    coverage: Option<Coverage>,
    scopes: Option<Scopes>,
}

#[derive(Clone, Debug)]
enum Coverage {
    Projects(Vec<String>),
    Workspaces(Vec<String>),
}

/// The actions that a leaf allows. An action that is absent or `false` is `None`.
#[derive(Clone, Debug, Default)]
struct Scopes {
    create: Option<CreateRule>,
    connect: Option<ConnectRule>,
    list: Option<ListRule>,
}

#[derive(Clone, Debug, Default)]
struct CreateRule {
    filters: Option<Tree<Fields>>,
}

#[derive(Clone, Debug, Default)]
struct ConnectRule {
    filters: Option<Tree<Fields>>,
    path: Option<Tree<TextCondition>>,
}

#[derive(Clone, Debug, Default)]
struct ListRule {
    filters: Option<Tree<Fields>>,
    select: Option<BTreeSet<String>>,
}

impl Leaf {
    fn at(&self, project: &str, workspace: Option<&str>) -> Result<&Self, BoundaryRefusal> {
        let inside = match &self.coverage {
            None => true,
            Some(Coverage::Projects(projects)) => projects.iter().any(|id| id == project),
            // An engine without a workspace is in none of the listed workspaces.
            Some(Coverage::Workspaces(workspaces)) => {
                workspace.is_some_and(|workspace| workspaces.iter().any(|id| id == workspace))
            }
        };
        if inside {
            Ok(self)
        } else {
            Err(BoundaryRefusal::ProjectOrWorkspace)
        }
    }

    /// True if some action is allowed for every tunnel and path.
    fn has_whole_action(&self) -> bool {
        let Some(scopes) = &self.scopes else {
            return true;
        };
        let (create, connect) = (scopes.create.as_ref(), scopes.connect.as_ref());
        create.is_some_and(|create| create.filters.is_none())
            || connect.is_some_and(|rule| rule.filters.is_none() && rule.path.is_none())
            || scopes
                .list
                .as_ref()
                .is_some_and(|list| list.filters.is_none())
    }

    /// The scopes that allow the action; `None` if the leaf has no scopes and allows all actions.
    fn rule(&self, action: Action) -> Result<Option<&Scopes>, BoundaryRefusal> {
        let Some(scopes) = &self.scopes else {
            return Ok(None);
        };
        let allowed = match action {
            Action::Create => scopes.create.is_some(),
            Action::Connect => scopes.connect.is_some(),
            Action::List => scopes.list.is_some(),
        };
        if allowed {
            Ok(Some(scopes))
        } else {
            Err(BoundaryRefusal::Action)
        }
    }
}

fn filters_hold(
    filters: Option<&Tree<Fields>>,
    subject: Subject<'_>,
) -> Result<(), BoundaryRefusal> {
    let holds =
        filters.is_none_or(|filters| filters.holds(&|fields: &Fields| fields.are_met(subject)));
    if holds {
        Ok(())
    } else {
        Err(BoundaryRefusal::FilterMismatch)
    }
}

type Selection = Option<BTreeSet<String>>;

/// AND shows the fields that every branch shows; OR shows the fields that any branch shows.
fn list_in(
    tree: &Tree<Leaf>,
    leaf_shows: &impl Fn(&Leaf) -> Result<Selection, BoundaryRefusal>,
) -> ListScope {
    match tree {
        Tree::Leaf(leaf) => match leaf_shows(leaf) {
            Ok(select) => ListScope::Visible { select },
            Err(_) => ListScope::Hidden,
        },
        Tree::And(all) => all.iter().map(|tree| list_in(tree, leaf_shows)).fold(
            ListScope::Visible { select: None },
            |both, next| match (both, next) {
                (ListScope::Hidden, _) | (_, ListScope::Hidden) => ListScope::Hidden,
                (ListScope::Visible { select: a }, ListScope::Visible { select: b }) => {
                    let select = match (a, b) {
                        (Some(a), Some(b)) => Some(a.intersection(&b).cloned().collect()),
                        (a, b) => a.or(b),
                    };
                    ListScope::Visible { select }
                }
            },
        ),
        Tree::Or(any) => any.iter().map(|tree| list_in(tree, leaf_shows)).fold(
            ListScope::Hidden,
            |either, next| match (either, next) {
                (ListScope::Hidden, shown) | (shown, ListScope::Hidden) => shown,
                (ListScope::Visible { select: a }, ListScope::Visible { select: b }) => {
                    let select = a.zip(b).map(|(a, b)| a.union(&b).cloned().collect());
                    ListScope::Visible { select }
                }
            },
        ),
    }
}
