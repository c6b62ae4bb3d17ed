//! Compares responses with an OpenAPI document.
//!
//! The comparison is stricter than JSON Schema: a member that the document does not list is an
//! error, because programs with a generated client never see it. It covers types, members, enums,
//! times, and the bounds of numbers and of the length of texts. Other keywords are ignored.

mod members;
mod schema;

use serde_json::Value;

pub use self::members::OptionalMembers;
use self::schema::{Check, resolved};

/// An OpenAPI document.
#[derive(Debug)]
pub struct Document(Value);

impl Document {
    /// The document, as it is served.
    pub const fn new(document: Value) -> Self {
        Self(document)
    }

    /// Compares a JSON body with the schema of the response. Returns the optional members in it, or
    /// every difference.
    ///
    /// # Errors
    /// The document has no such operation, status or JSON response, or the body differs.
    pub fn check(
        &self,
        method: &str,
        path: &str,
        status: u16,
        body: &Value,
    ) -> Result<OptionalMembers, String> {
        let schema = self
            .schema(method, path, status)
            .ok_or_else(|| format!("{method} {path}: no JSON schema for {status}"))?;
        let mut check = Check::new(&self.0);
        check.value(schema, body, "$");
        if check.errors.is_empty() {
            Ok(check.members)
        } else {
            let errors = check.errors.join("; ");
            Err(format!("{method} {path} {status}: {errors}\n{body}"))
        }
    }

    /// The schema of a JSON response.
    fn schema(&self, method: &str, path: &str, status: u16) -> Option<&Value> {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let paths = self.0.get("paths")?.as_object()?;
        let fitting = paths.iter().filter(|(template, _)| fits(template, path));
        // A literal segment precedes a parameter.
        let (_, item) = fitting.min_by_key(|(template, _)| template.matches('{').count())?;
        let responses = item.get(method.to_lowercase())?.get("responses")?;
        let response = resolved(&self.0, responses.get(status.to_string())?)?;
        let content = response.get("content")?.as_object()?;
        let json = content.iter().find(|(kind, _)| kind.contains("json"));
        json?.1.get("schema")
    }
}

/// True if the path has the form of the template, with one segment for each parameter.
fn fits(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template
            .zip(path)
            .all(|(part, given)| part.starts_with('{') || part == given)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn document() -> Document {
        Document::new(json!({
            "paths": {
                "/things/{id}": {"get": {"responses": {
                    "200": {"content": {"application/json": {"schema": {
                        "allOf": [
                            {"$ref": "#/components/schemas/Thing"},
                            {"type": "object", "properties": {"page": {"type": "integer", "minimum": 1}},
                             "required": ["page"]},
                            {"type": "object", "required": ["note"]},
                        ],
                    }}}},
                    "404": {"$ref": "#/components/responses/NotFound"},
                }}},
                "/things/new": {"get": {"responses": {"200": {"description": "no body"}}}},
            },
            "components": {
                "responses": {"NotFound": {"content": {"application/problem+json": {
                    "schema": {"type": "object"},
                }}}},
                "schemas": {
                    "Kind": {"type": "string", "enum": ["a", "b"]},
                    "Thing": {
                        "type": "object",
                        "properties": {
                            "kind": {"$ref": "#/components/schemas/Kind"},
                            "at": {"type": ["string", "null"], "format": "date-time"},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                            "note": {"type": "string"},
                            "other": {"oneOf": [{"type": "null"}, {"$ref": "#/components/schemas/Kind"}]},
                            "place": {
                                "properties": {"x": {"type": "integer"}},
                                "required": ["x"],
                            },
                        },
                        "required": ["kind", "at"],
                    },
                },
            },
        }))
    }

    #[test]
    fn a_response_that_fits_reports_its_optional_members() {
        let body = json!({
            "kind": "a", "at": null, "labels": {"x": "y"}, "note": "", "page": 1,
        });
        let members = document()
            .check("GET", "/things/7?x=1", 200, &body)
            .unwrap();
        let named = |member: &str| ("Thing".to_owned(), member.to_owned());
        assert_eq!(members.present, BTreeSet::from([named("labels")]));
        assert_eq!(
            members.absent,
            BTreeSet::from([named("other"), named("place")])
        );
        assert_eq!(members.never_absent(), [&named("labels")]);
    }

    #[test]
    fn every_difference_is_reported_with_its_place() {
        let whole = json!({
            "kind": "a", "at": "2026-01-01T00:00:00Z", "note": "", "page": 1,
        });
        document().check("GET", "/things/7", 200, &whole).unwrap();
        for (member, value, place) in [
            ("kind", json!("c"), "$.kind"),
            ("kind", json!(null), "$.kind"),
            ("at", json!("yesterday"), "$.at"),
            ("labels", json!({"x": 1}), "$.labels.x"),
            ("other", json!("c"), "$.other"),
            ("place", json!({}), "$.place.x"),
            ("page", json!(0), "$.page"),
            ("page", json!("1"), "$.page"),
            ("unknown", json!(1), "$.unknown"),
        ] {
            let mut body = whole.clone();
            body[member] = value;
            let error = document().check("GET", "/things/7", 200, &body);
            assert!(
                error.as_ref().is_err_and(|text| text.contains(place)),
                "{error:?}"
            );
        }
        // The last one is required by another part than the one that lists it.
        for member in ["kind", "at", "page", "note"] {
            let mut body = whole.clone();
            body.as_object_mut().unwrap().remove(member);
            let error = document()
                .check("GET", "/things/7", 200, &body)
                .unwrap_err();
            assert!(error.contains(&format!("`{member}` is missing")), "{error}");
        }
        assert!(
            document()
                .check("GET", "/things/7", 200, &json!([]))
                .is_err()
        );
    }

    #[test]
    fn responses_are_found_by_operation_and_status() {
        let document = document();
        assert!(
            document
                .check("GET", "/things/7", 404, &json!({"x": 1}))
                .is_ok()
        );
        for (method, path, status) in [
            ("GET", "/things/new", 200),
            ("GET", "/things/7", 500),
            ("PUT", "/things/7", 200),
            ("GET", "/things", 200),
        ] {
            let error = document
                .check(method, path, status, &json!({}))
                .unwrap_err();
            assert!(error.contains("no JSON schema"), "{error}");
        }
    }
}
