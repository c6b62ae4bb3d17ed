//! Compares a value with a schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::members::OptionalMembers;

/// One comparison, with its findings.
pub(crate) struct Check<'a> {
    document: &'a Value,
    pub(crate) errors: Vec<String>,
    pub(crate) members: OptionalMembers,
}

/// The members of an object, of all parts of an `allOf`.
#[derive(Default)]
struct Members<'a> {
    /// Member, its schema, and the component that lists it.
    listed: Vec<(&'a str, &'a Value, Option<&'a str>)>,
    /// Required members. A part may require a member that another part lists.
    required: BTreeSet<&'a str>,
    /// Schema of all other members, if they are allowed.
    others: Option<&'a Value>,
    /// True if a part lists no members at all: any object.
    is_free: bool,
}

impl<'a> Check<'a> {
    pub(crate) fn new(document: &'a Value) -> Self {
        Self {
            document,
            errors: Vec::new(),
            members: OptionalMembers::default(),
        }
    }

    /// Compares a value at a place with a schema.
    pub(crate) fn value(&mut self, schema: &'a Value, value: &Value, at: &str) {
        for choice in ["oneOf", "anyOf"] {
            if let Some(branches) = schema.get(choice).and_then(Value::as_array) {
                return self.one_of(branches, value, at);
            }
        }
        if schema.get("allOf").is_some() {
            return self.object(schema, value, at);
        }
        let Some(plain) = resolved(self.document, schema) else {
            return self.error(at, "a reference that leads nowhere");
        };
        if plain.get("oneOf").is_some() || plain.get("anyOf").is_some() {
            return self.value(plain, value, at);
        }
        if let Some(allowed) = plain.get("enum").and_then(Value::as_array)
            && !allowed.contains(value)
        {
            return self.error(at, &format!("{value} is not one of {allowed:?}"));
        }
        let types = match plain.get("type") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ if is_of_objects(plain) => vec!["object"],
            // Any value.
            _ => return,
        };
        match value {
            Value::Object(_) if types.contains(&"object") => self.object(schema, value, at),
            Value::Array(items) if types.contains(&"array") => {
                let Some(schema) = plain.get("items") else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    self.value(schema, item, &format!("{at}[{index}]"));
                }
            }
            Value::String(text) if types.contains(&"string") => self.text(plain, text, at),
            Value::Number(number) if types.contains(&"integer") || types.contains(&"number") => {
                let is_integer = number.is_i64() || number.is_u64();
                if !is_integer && !types.contains(&"number") {
                    self.error(at, "not an integer");
                }
                self.range(plain, number.as_f64(), at);
            }
            Value::Bool(_) if types.contains(&"boolean") => {}
            Value::Null if types.contains(&"null") => {}
            _ => self.error(at, &format!("{value} is not of type {types:?}")),
        }
    }

    /// One branch fits.
    fn one_of(&mut self, branches: &'a [Value], value: &Value, at: &str) {
        let mut reasons = Vec::new();
        for branch in branches {
            let mut check = Self::new(self.document);
            check.value(branch, value, at);
            if check.errors.is_empty() {
                return self.members.extend(check.members);
            }
            reasons.extend(check.errors);
        }
        self.error(at, &format!("no branch fits: {}", reasons.join("; ")));
    }

    fn object(&mut self, schema: &'a Value, value: &Value, at: &str) {
        let Some(object) = value.as_object() else {
            return self.error(at, &format!("{value} is not an object"));
        };
        let mut members = Members::default();
        self.collect(schema, None, &mut members);
        for name in &members.required {
            if !object.contains_key(*name) {
                self.error(&format!("{at}.{name}"), &format!("`{name}` is missing"));
            }
        }
        for (name, schema, component) in &members.listed {
            if let Some(member) = object.get(*name) {
                self.value(schema, member, &format!("{at}.{name}"));
            }
            if let Some(component) = component
                && !members.required.contains(name)
            {
                let member = ((*component).to_owned(), (*name).to_owned());
                let seen = if object.contains_key(*name) {
                    &mut self.members.present
                } else {
                    &mut self.members.absent
                };
                seen.insert(member);
            }
        }
        self.others(&members, object, at);
    }

    /// The members that the schema does not list.
    fn others(&mut self, members: &Members<'a>, object: &Map<String, Value>, at: &str) {
        let is_listed = |name: &String| members.listed.iter().any(|(listed, ..)| listed == name);
        for (name, value) in object.iter().filter(|(name, _)| !is_listed(name)) {
            let at = format!("{at}.{name}");
            match members.others {
                Some(schema) => self.value(schema, value, &at),
                None if members.is_free => {}
                None => self.error(&at, "the document does not list this member"),
            }
        }
    }

    /// Collects the members of an object schema and of its parts.
    fn collect(&self, schema: &'a Value, component: Option<&'a str>, into: &mut Members<'a>) {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let component = reference
            .and_then(|reference| reference.strip_prefix(COMPONENTS))
            .or(component);
        let Some(schema) = resolved(self.document, schema) else {
            return;
        };
        let parts = schema.get("allOf").and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            self.collect(part, component, into);
        }
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        into.required.extend(required);
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            into.listed.push((name, property, component));
        }
        match schema.get("additionalProperties") {
            Some(others @ Value::Object(_)) => into.others = Some(others),
            Some(Value::Bool(true)) => into.is_free = true,
            _ => into.is_free |= !is_of_objects(schema),
        }
    }

    fn text(&mut self, schema: &Value, text: &str, at: &str) {
        if schema
            .get("format")
            .is_some_and(|format| format == "date-time")
            && text.parse::<jiff::Timestamp>().is_err()
        {
            self.error(at, &format!("`{text}` is not a time"));
        }
        let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        let bound = |keyword| schema.get(keyword).and_then(Value::as_u64);
        let is_short = bound("minLength").is_some_and(|least| length < least);
        if is_short || bound("maxLength").is_some_and(|most| length > most) {
            self.error(at, &format!("`{text}` has a length out of range"));
        }
    }

    fn range(&mut self, schema: &Value, number: Option<f64>, at: &str) {
        let bound = |keyword| schema.get(keyword).and_then(Value::as_f64);
        let number = number.unwrap_or(f64::NAN);
        let is_below = bound("minimum").is_some_and(|least| number < least);
        if is_below || bound("maximum").is_some_and(|most| number > most) {
            self.error(at, &format!("{number} is out of range"));
        }
    }

    fn error(&mut self, at: &str, what: &str) {
        self.errors.push(format!("{at}: {what}"));
    }
}

/// The object itself, or the component that it refers to.
pub(crate) fn resolved<'a>(document: &'a Value, object: &'a Value) -> Option<&'a Value> {
    match object.get("$ref").and_then(Value::as_str) {
        Some(reference) => document.pointer(reference.strip_prefix('#')?),
        None => Some(object),
    }
}

/// True if a schema describes the members of an object.
fn is_of_objects(schema: &Value) -> bool {
    let mut keywords = ["properties", "allOf", "required"].into_iter();
    keywords.any(|keyword| schema.get(keyword).is_some())
}

const COMPONENTS: &str = "#/components/schemas/";
