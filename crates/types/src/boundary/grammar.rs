//! Parser of boundaries. Every error here results in a boundary that refuses everything, and in an
//! error that names the field if a token is being minted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::condition::{Condition, Fields, TextCondition};
use super::field::{Field, Kind};
use super::{ConnectRule, Coverage, CreateRule, Leaf, ListRule, Scopes, Tree};
use crate::filter::ParamError;
use crate::pattern::Pattern;

/// Maximum number of patterns in one boundary. It limits the memory and the start-up cost of a
/// token.
pub const MAX_PATTERNS: usize = 16;

/// Maximum nesting of AND and OR: the same as for all JSON input of this project.
const MAX_DEPTH: usize = 32;

pub(super) fn parse(resources: &Value, compat: bool) -> Result<Tree<Leaf>, ParamError> {
    let mut reader = Reader {
        compat,
        patterns_left: MAX_PATTERNS,
    };
    let members = object(resources, "resources")?;
    only_keys(members, "resources", &["tunnels"])?;
    let tunnels = members
        .get("tunnels")
        .ok_or_else(|| ParamError::new("resources.tunnels", "is missing"))?;
    reader.tree(tunnels, "resources.tunnels", MAX_DEPTH, &mut Reader::leaf)
}

struct Reader {
    compat: bool,
    patterns_left: usize,
}

type Read<T> = Result<T, ParamError>;

impl Reader {
    /// `{AND: […]}`, `{OR: […]}`, or a leaf.
    fn tree<L>(
        &mut self,
        value: &Value,
        at: &str,
        depth: usize,
        leaf: &mut impl FnMut(&mut Self, &Map<String, Value>, &str) -> Read<L>,
    ) -> Read<Tree<L>> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(ParamError::new(at, "nested too deeply"));
        };
        let members = object(value, at)?;
        let Some((operator, branches)) = ["AND", "OR"]
            .into_iter()
            .find_map(|operator| Some(operator).zip(members.get(operator)))
        else {
            return leaf(self, members, at).map(Tree::Leaf);
        };
        only_keys(members, at, &[operator])?;
        let at = format!("{at}.{operator}");
        let branches = entries(branches, &at)?
            .map(|(at, branch)| self.tree(branch, &at, depth, leaf))
            .collect::<Read<Vec<_>>>()?;
        Ok(if operator == "AND" {
            Tree::And(branches)
        } else {
            Tree::Or(branches)
        })
    }

    fn leaf(&mut self, members: &Map<String, Value>, at: &str) -> Read<Leaf> {
        only_keys(members, at, &["projects", "workspaces", "scopes"])?;
        let ids = |key: &str| {
            members
                .get(key)
                .map(|ids| texts(ids, &format!("{at}.{key}")))
                .transpose()
        };
        let place = match (ids("projects")?, ids("workspaces")?) {
            (Some(_), Some(_)) => {
                return Err(ParamError::new(
                    at,
                    "names projects or workspaces, not both",
                ));
            }
            (Some(projects), None) => Some(Coverage::Projects(projects)),
            (None, Some(workspaces)) => Some(Coverage::Workspaces(workspaces)),
            (None, None) => None,
        };
        let scopes = match members.get("scopes") {
            Some(scopes) => Some(self.scopes(scopes, &format!("{at}.scopes"))?),
            None if place.is_none() => {
                return Err(ParamError::new(
                    at,
                    "names neither projects, workspaces nor scopes",
                ));
            }
            None => None,
        };
        Ok(Leaf {
            coverage: place,
            scopes,
        })
    }

    fn scopes(&mut self, value: &Value, at: &str) -> Read<Scopes> {
        let members = object(value, at)?;
        only_keys(members, at, &["tunnels"])?;
        let at = format!("{at}.tunnels");
        let actions = object(
            members
                .get("tunnels")
                .ok_or_else(|| ParamError::new(&at, "is missing"))?,
            &at,
        )?;
        only_keys(actions, &at, &["create", "connect", "list"])?;
        if actions.is_empty() {
            return Err(ParamError::new(at, "names no action"));
        }
        let mut scopes = Scopes::default();
        if let Some((rule, at)) = action(actions, &at, "create", &["filters"])? {
            scopes.create = Some(CreateRule {
                filters: self.filters(rule, &at, Field::is_settable)?,
            });
        }
        if let Some((rule, at)) = action(actions, &at, "connect", &["filters", "params"])? {
            scopes.connect = Some(ConnectRule {
                filters: self.filters(rule, &at, |_| true)?,
                path: self.params(rule, &at)?,
            });
        }
        if let Some((rule, at)) = action(actions, &at, "list", &["filters", "select"])? {
            scopes.list = Some(ListRule {
                filters: self.filters(rule, &at, |_| true)?,
                select: self.select(rule, &at)?,
            });
        }
        Ok(scopes)
    }

    fn filters(
        &mut self,
        rule: Option<&Map<String, Value>>,
        at: &str,
        may_name: fn(Field) -> bool,
    ) -> Read<Option<Tree<Fields>>> {
        let Some(filters) = rule.and_then(|rule| rule.get("filters")) else {
            return Ok(None);
        };
        let mut leaf = |reader: &mut Self, members: &Map<String, Value>, at: &str| {
            let mut fields = Vec::with_capacity(members.len());
            for (name, value) in members {
                let at = format!("{at}.{name}");
                let field = Field::named(name, reader.compat).filter(|field| may_name(*field));
                let field = field.ok_or_else(|| ParamError::new(&at, "unknown field"))?;
                fields.push((field, reader.condition(field, value, &at)?));
            }
            Ok(Fields(fields))
        };
        self.tree(filters, &format!("{at}.filters"), MAX_DEPTH, &mut leaf)
            .map(Some)
    }

    fn params(
        &mut self,
        rule: Option<&Map<String, Value>>,
        at: &str,
    ) -> Read<Option<Tree<TextCondition>>> {
        let Some(params) = rule.and_then(|rule| rule.get("params")) else {
            return Ok(None);
        };
        let mut leaf = |reader: &mut Self, members: &Map<String, Value>, at: &str| {
            only_keys(members, at, &["path"])?;
            let at = format!("{at}.path");
            let path = members
                .get("path")
                .ok_or_else(|| ParamError::new(&at, "is missing"))?;
            reader.text(path, &at, |text| Some(text.to_owned()))
        };
        self.tree(params, &format!("{at}.params"), MAX_DEPTH, &mut leaf)
            .map(Some)
    }

    fn select(
        &self,
        rule: Option<&Map<String, Value>>,
        at: &str,
    ) -> Read<Option<BTreeSet<String>>> {
        let Some(select) = rule.and_then(|rule| rule.get("select")) else {
            return Ok(None);
        };
        let at = format!("{at}.select");
        let members = object(select, &at)?;
        if members.is_empty() {
            return Err(ParamError::new(at, "selects nothing"));
        }
        let read = |(name, value): (&String, &Value)| {
            let at = format!("{at}.{name}");
            let field = Field::named(name, self.compat)
                .ok_or_else(|| ParamError::new(&at, "unknown field"))?;
            match value {
                Value::Bool(true) => Ok(field.as_str().to_owned()),
                _ => Err(ParamError::new(at, "expected true")),
            }
        };
        let mut fields: BTreeSet<String> = members.iter().map(read).collect::<Read<_>>()?;
        // A selected field is shown in both spellings.
        if self.compat && fields.contains(Field::SvcAuth.as_str()) {
            fields.insert("rstream_auth".to_owned());
        }
        Ok(Some(fields))
    }

    fn condition(&mut self, field: Field, value: &Value, at: &str) -> Read<Condition> {
        match field.kind() {
            Kind::Text | Kind::Word => {
                let condition = self.text(value, at, |text| field.canonical(text))?;
                match condition {
                    TextCondition::Matches(_) if field.kind() == Kind::Word => {
                        Err(ParamError::new(at, "takes fixed values, not a pattern"))
                    }
                    condition => Ok(Condition::Text(condition)),
                }
            }
            Kind::Flag => one_or_more(value, at, Value::as_bool, "expected true or false")
                .map(Condition::Flag),
            Kind::Number => {
                let port = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
                one_or_more(value, at, port, "expected a port number").map(Condition::Number)
            }
            Kind::List => {
                let canonical = |text: String| {
                    field
                        .canonical(&text)
                        .ok_or_else(|| ParamError::new(at, "contains an invalid value"))
                };
                let list = texts(value, at)?
                    .into_iter()
                    .map(canonical)
                    .collect::<Read<_>>()?;
                Ok(Condition::List(list))
            }
            Kind::Map => {
                let read = |(key, value): (&String, &Value)| {
                    let condition =
                        self.text(value, &format!("{at}.{key}"), |text| Some(text.to_owned()))?;
                    Ok((key.clone(), condition))
                };
                object(value, at)?
                    .iter()
                    .map(read)
                    .collect::<Read<BTreeMap<_, _>>>()
                    .map(Condition::Map)
            }
        }
    }

    /// A bare text, `{exact}`, `{oneof}` or `{regex}`.
    fn text(
        &mut self,
        value: &Value,
        at: &str,
        canonical: impl Fn(&str) -> Option<String>,
    ) -> Read<TextCondition> {
        let exact = |value: &Value, at: &str| {
            let text = value
                .as_str()
                .ok_or_else(|| ParamError::new(at, "expected a string"))?;
            canonical(text).ok_or_else(|| ParamError::new(at, "is not a valid value"))
        };
        if value.is_string() {
            return exact(value, at).map(|text| TextCondition::OneOf(vec![text]));
        }
        let (operator, operand, at) = operator(value, at, &["exact", "oneof", "regex"])?;
        match operator {
            "exact" => exact(operand, &at).map(|text| TextCondition::OneOf(vec![text])),
            "oneof" => {
                let texts = entries(operand, &at)?
                    .map(|(at, text)| exact(text, &at))
                    .collect::<Read<_>>()?;
                Ok(TextCondition::OneOf(texts))
            }
            _ => {
                let pattern = operand
                    .as_str()
                    .ok_or_else(|| ParamError::new(&at, "expected a string"))?;
                self.patterns_left = self.patterns_left.checked_sub(1).ok_or_else(|| {
                    ParamError::new(&at, format!("more than {MAX_PATTERNS} patterns"))
                })?;
                let pattern = Pattern::parse(pattern)
                    .map_err(|error| ParamError::new(&at, error.to_string()))?;
                Ok(TextCondition::Matches(pattern))
            }
        }
    }
}

/// Members of an action's object, if it has one, and its path in the document.
type Rule<'a> = (Option<&'a Map<String, Value>>, String);

/// An action: `None` if it is absent or `false`, no members if it is `true`.
fn action<'a>(
    actions: &'a Map<String, Value>,
    at: &str,
    name: &str,
    keys: &[&str],
) -> Read<Option<Rule<'a>>> {
    let at = format!("{at}.{name}");
    match actions.get(name) {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some((None, at))),
        Some(value) => {
            let members = value
                .as_object()
                .ok_or_else(|| ParamError::new(&at, "expected true, false or an object"))?;
            only_keys(members, &at, keys)?;
            Ok(Some((Some(members), at)))
        }
    }
}

/// A bare value, `{exact}` or `{oneof}`.
fn one_or_more<T: Ord>(
    value: &Value,
    at: &str,
    read: impl Fn(&Value) -> Option<T>,
    expected: &'static str,
) -> Read<BTreeSet<T>> {
    let one = |value: &Value, at: &str| read(value).ok_or_else(|| ParamError::new(at, expected));
    if !value.is_object() {
        return one(value, at).map(|value| BTreeSet::from([value]));
    }
    match operator(value, at, &["exact", "oneof"])? {
        ("exact", operand, at) => one(operand, &at).map(|value| BTreeSet::from([value])),
        (_, operand, at) => entries(operand, &at)?
            .map(|(at, value)| one(value, &at))
            .collect(),
    }
}

/// Returns the only member of an operator object.
fn operator<'a>(
    value: &'a Value,
    at: &str,
    operators: &[&'static str],
) -> Read<(&'static str, &'a Value, String)> {
    let wrong = || {
        ParamError::new(
            at,
            format!("expected a value or one of {}", operators.join(", ")),
        )
    };
    let members = value
        .as_object()
        .filter(|members| members.len() == 1)
        .ok_or_else(wrong)?;
    let (name, operand) = members.iter().next().ok_or_else(wrong)?;
    let operator = operators
        .iter()
        .find(|operator| *operator == name)
        .ok_or_else(wrong)?;
    Ok((operator, operand, format!("{at}.{operator}")))
}

fn object<'a>(value: &'a Value, at: &str) -> Read<&'a Map<String, Value>> {
    value
        .as_object()
        .ok_or_else(|| ParamError::new(at, "expected an object"))
}

fn only_keys(members: &Map<String, Value>, at: &str, keys: &[&str]) -> Read<()> {
    match members.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => Err(ParamError::new(format!("{at}.{key}"), "unknown key")),
        None => Ok(()),
    }
}

/// Entries of a non-empty list. An empty list is refused because it could mean nothing or
/// everything.
fn entries<'a>(value: &'a Value, at: &str) -> Read<impl Iterator<Item = (String, &'a Value)>> {
    let list = value
        .as_array()
        .ok_or_else(|| ParamError::new(at, "expected a list"))?;
    if list.is_empty() {
        return Err(ParamError::new(at, "is empty"));
    }
    Ok(list
        .iter()
        .enumerate()
        .map(move |(place, entry)| (format!("{at}.{place}"), entry)))
}

fn texts(value: &Value, at: &str) -> Read<Vec<String>> {
    let text = |(at, entry): (String, &Value)| {
        let text = entry.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
            .ok_or_else(|| ParamError::new(at, "expected a string"))
    };
    entries(value, at)?.map(text).collect()
}
