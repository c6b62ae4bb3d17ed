//! `create`: filters that check the requested properties and fill in the ones that the client left
//! open.
//!
//! The boundary is reduced to requirements on the properties. Values that AND fixes are set first.
//! Each OR is then settled by the one branch that fits. At the end the result is checked against
//! all requirements, so that no order of setting can bypass them.

use super::condition::{Condition, Fields};
use super::field::Subject;
use super::{Action, BoundaryRefusal, Leaf, Refusal, Tree};
use crate::tunnel::TunnelProperties;

/// A boundary for one project, reduced to its requirements on the properties.
pub(super) enum RequiredProperties<'a> {
    Never(BoundaryRefusal),
    Always,
    Fields(&'a Fields),
    All(Vec<Self>),
    Any(Vec<Self>),
}

pub(super) fn demand<'a>(
    tree: &'a Tree<Leaf>,
    project: &str,
    workspace: Option<&str>,
) -> RequiredProperties<'a> {
    match tree {
        Tree::And(all) => RequiredProperties::All(
            all.iter()
                .map(|tree| demand(tree, project, workspace))
                .collect(),
        ),
        Tree::Or(any) => RequiredProperties::Any(
            any.iter()
                .map(|tree| demand(tree, project, workspace))
                .collect(),
        ),
        Tree::Leaf(leaf) => match leaf
            .at(project, workspace)
            .and_then(|leaf| leaf.rule(Action::Create))
        {
            Err(outside) => RequiredProperties::Never(outside),
            Ok(scopes) => {
                let rule = scopes.and_then(|scopes| scopes.create.as_ref());
                rule.and_then(|rule| rule.filters.as_ref())
                    .map_or(RequiredProperties::Always, demand_of_filters)
            }
        },
    }
}

fn demand_of_filters(filters: &Tree<Fields>) -> RequiredProperties<'_> {
    match filters {
        Tree::Leaf(fields) => RequiredProperties::Fields(fields),
        Tree::And(all) => RequiredProperties::All(all.iter().map(demand_of_filters).collect()),
        Tree::Or(any) => RequiredProperties::Any(any.iter().map(demand_of_filters).collect()),
    }
}

/// Returns the properties with all fixed values set, or a refusal.
pub(super) fn settle(
    demand: &RequiredProperties<'_>,
    mut properties: TunnelProperties,
) -> Result<TunnelProperties, Refusal> {
    properties
        .fold_deprecated_alias()
        .map_err(|error| Refusal {
            outside: BoundaryRefusal::FilterMismatch,
            field: Some(error.field),
        })?;
    demand.fix(&mut properties)?;
    demand.choose(&mut properties)?;
    // Conditions that fix no value, such as patterns, also apply to the defaults.
    let effective = properties
        .clone()
        .resolve()
        .unwrap_or_else(|_| properties.clone());
    match demand.refusal(&effective) {
        Some(refusal) => Err(refusal),
        None => Ok(properties),
    }
}

impl RequiredProperties<'_> {
    /// Sets the values outside of every OR.
    fn fix(&self, properties: &mut TunnelProperties) -> Result<(), Refusal> {
        match self {
            Self::Never(outside) => Err(Refusal {
                outside: *outside,
                field: None,
            }),
            Self::Always | Self::Any(_) => Ok(()),
            Self::Fields(fields) => fields.fix(properties),
            Self::All(all) => all.iter().try_for_each(|demand| demand.fix(properties)),
        }
    }

    /// Settles every OR: by the given values, or else by the only branch that fits.
    fn choose(&self, properties: &mut TunnelProperties) -> Result<(), Refusal> {
        match self {
            Self::Never(_) | Self::Always | Self::Fields(_) => Ok(()),
            Self::All(all) => all.iter().try_for_each(|demand| demand.choose(properties)),
            Self::Any(any) => {
                let mut outcomes: Vec<TunnelProperties> = Vec::new();
                let mut first_refusal = None;
                for branch in any {
                    match settle(branch, properties.clone()) {
                        Ok(outcome) if outcome == *properties => return Ok(()),
                        Ok(outcome) if outcomes.contains(&outcome) => {}
                        Ok(outcome) => outcomes.push(outcome),
                        Err(refusal) => _ = first_refusal.get_or_insert(refusal),
                    }
                }
                match (outcomes.pop(), outcomes.is_empty()) {
                    (Some(only), true) => *properties = only,
                    (Some(_), false) => {
                        return Err(Refusal {
                            outside: BoundaryRefusal::FilterMismatch,
                            field: None,
                        });
                    }
                    (None, _) => {
                        return Err(first_refusal.unwrap_or(Refusal {
                            outside: BoundaryRefusal::Malformed,
                            field: None,
                        }));
                    }
                }
                Ok(())
            }
        }
    }

    fn refusal(&self, properties: &TunnelProperties) -> Option<Refusal> {
        match self {
            Self::Never(outside) => Some(Refusal {
                outside: *outside,
                field: None,
            }),
            Self::Always => None,
            Self::Fields(fields) => fields
                .first_that_fails(Subject::new_tunnel(properties))
                .map(|field| Refusal {
                    outside: BoundaryRefusal::FilterMismatch,
                    field: Some(field.as_str().to_owned()),
                }),
            Self::All(all) => all.iter().find_map(|demand| demand.refusal(properties)),
            Self::Any(any) => {
                let mut refusals = any.iter().map(|demand| demand.refusal(properties));
                refusals
                    .try_fold(None, |first: Option<Refusal>, next| {
                        Some(first.or(Some(next?)))
                    })
                    .flatten()
            }
        }
    }
}

impl Fields {
    fn fix(&self, properties: &mut TunnelProperties) -> Result<(), Refusal> {
        for (field, condition) in &self.0 {
            let fixed = match condition {
                Condition::Text(text) => text
                    .only()
                    .map_or(Ok(()), |only| field.set_text(properties, only)),
                Condition::Flag(allowed) => {
                    if let (Some(only), 1) = (allowed.first(), allowed.len()) {
                        field.set_flag(properties, *only);
                    }
                    Ok(())
                }
                Condition::Number(allowed) => {
                    if let (Some(only), 1) = (allowed.first(), allowed.len()) {
                        field.set_number(properties, *only);
                    }
                    Ok(())
                }
                Condition::List(entries) => field.set_list(properties, entries),
                Condition::Map(wanted) => {
                    let Some(labels) = field.map(properties) else {
                        continue;
                    };
                    for (key, text) in wanted {
                        if let Some(only) = text.only() {
                            labels.entry(key.clone()).or_insert_with(|| only.to_owned());
                        }
                    }
                    Ok(())
                }
            };
            fixed.map_err(|error| Refusal {
                outside: BoundaryRefusal::FilterMismatch,
                field: Some(error.field),
            })?;
        }
        Ok(())
    }
}
