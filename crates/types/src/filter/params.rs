//! `params`: the JSON object in the query of the Engine API, parsed strictly (EN-2).

use std::borrow::Cow;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::{ClientFilter, TunnelFilter};
use crate::json::{self, JsonError, Limits};

/// A filter inside `params`.
pub trait Filter: Default + Sized {
    /// Name of the schema of `params` with this filter.
    const PARAMS_SCHEMA: &'static str;

    /// Number of objects in a list without `limit`; `None`: all of them.
    const DEFAULT_LIMIT: Option<u16> = None;

    /// Parses the filter from a JSON value at `field`. Unknown keys are refused by name.
    fn from_json(value: &Value, field: &str, compat: bool) -> Result<Self, ParamError>;
}

/// `params` of `/api/clients` and `/api/tunnels`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListParams<F> {
    /// Maximum number of objects, 1 to [`MAX_LIMIT`]; [`Filter::DEFAULT_LIMIT`] if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
    /// Conditions on the objects.
    pub filters: F,
}

/// `params` of `/api/clients`.
pub type ListClientsParams = ListParams<ClientFilter>;

/// `params` of `/api/tunnels`.
pub type ListTunnelsParams = ListParams<TunnelFilter>;

impl<F: Filter> ListParams<F> {
    /// Parses the decoded text of the parameter (EN-2).
    pub fn parse(text: &str, compat: bool) -> Result<Self, ParamError> {
        let document = read(text)?;
        let mut params = Self::default();
        for (key, at, value) in members(&document, "")? {
            match key {
                "limit" => params.limit = Some(limit(value, &at)?),
                "filters" => params.filters = F::from_json(value, &at, compat)?,
                _ => return Err(unknown_key(at)),
            }
        }
        Ok(params)
    }

    /// Parses `params` from a raw query. Without `params` the defaults apply.
    pub fn from_query(query: &str, compat: bool) -> Result<Self, ParamError> {
        params_of_query(query)?
            .map_or_else(|| Ok(Self::default()), |text| Self::parse(&text, compat))
    }
}

impl<F: Filter + ToSchema> PartialSchema for ListParams<F> {
    fn schema() -> RefOr<Schema> {
        let about = match F::DEFAULT_LIMIT {
            Some(_) => "At most this many objects.",
            None => "At most this many objects; default all.",
        };
        ObjectBuilder::new()
            .property("limit", limit_schema(about, MAX_LIMIT, F::DEFAULT_LIMIT))
            .property("filters", Ref::from_schema_name(F::name()))
            .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
            .description(Some("Filters a list."))
            .into()
    }
}

/// The schema of a `limit`: from 1 to `most`.
pub fn limit_schema(about: &str, most: u16, default: Option<u16>) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Integer))
        .minimum(Some(1))
        .maximum(Some(most))
        .default(default.map(Value::from))
        .description(Some(about))
        .into()
}

impl<F: Filter + ToSchema> ToSchema for ListParams<F> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed(F::PARAMS_SCHEMA)
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((F::name().into_owned(), F::schema()));
        F::schemas(schemas);
    }
}

/// `params` of `/api/sse` and `/api/websocket`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchParams {
    /// Conditions on the clients of the stream; every client if absent.
    #[schema(required = false)]
    pub clients: ClientFilter,
    /// Conditions on the tunnels of the stream; every tunnel if absent.
    #[schema(required = false)]
    pub tunnels: TunnelFilter,
    /// True to include `webtty.*` events; `{}` means `true`.
    #[schema(required = false, default = false)]
    pub webtty: bool,
}

impl WatchParams {
    /// Parses the decoded text of the parameter (EN-3).
    pub fn parse(text: &str, compat: bool) -> Result<Self, ParamError> {
        let document = read(text)?;
        let mut params = Self::default();
        for (key, at, value) in members(&document, "")? {
            match key {
                "clients" => params.clients = ClientFilter::from_json(value, &at, compat)?,
                "tunnels" => params.tunnels = TunnelFilter::from_json(value, &at, compat)?,
                "webtty" => params.webtty = asks_for_webtty(value, &at)?,
                _ => return Err(unknown_key(at)),
            }
        }
        Ok(params)
    }

    /// Parses `params` from a raw query. Without `params` the defaults apply.
    pub fn from_query(query: &str, compat: bool) -> Result<Self, ParamError> {
        params_of_query(query)?
            .map_or_else(|| Ok(Self::default()), |text| Self::parse(&text, compat))
    }
}

/// An invalid input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{}{message}", if field.is_empty() { "" } else { ": " })]
pub struct ParamError {
    /// Dotted path, for example `filters.name`; empty for the whole input.
    pub field: String,
    /// Description of the error.
    pub message: String,
}

impl ParamError {
    /// An error of one input.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl From<JsonError> for ParamError {
    fn from(error: JsonError) -> Self {
        Self::new(error.field, error.message)
    }
}

/// Returns the decoded text of the only `params` in a raw query, or `None` without one. It uses
/// form encoding (`+` is a space), which the libraries of the SDKs write.
pub fn params_of_query(query: &str) -> Result<Option<String>, ParamError> {
    let named = |piece: &&str| {
        let name = piece.split('=').next().unwrap_or_default();
        form_decode(name).is_some_and(|name| name == b"params")
    };
    let mut pieces = query.split('&').filter(named);
    let Some(piece) = pieces.next() else {
        return Ok(None);
    };
    if pieces.next().is_some() {
        return Err(ParamError::new("params", "is repeated"));
    }
    let value = piece.split_once('=').map_or("", |(_, value)| value);
    if value.is_empty() {
        return Err(ParamError::new("params", "is empty"));
    }
    let bytes = form_decode(value)
        .ok_or_else(|| ParamError::new("params", "contains an invalid escape"))?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| ParamError::new("params", "is not UTF-8"))
}

fn read(text: &str) -> Result<Value, ParamError> {
    json::parse(text.as_bytes(), PARAMS_LIMITS).map_err(|error| {
        let field = if error.field.is_empty() {
            "params".to_owned()
        } else {
            error.field
        };
        ParamError::new(field, error.message)
    })
}

/// Members of an object at `field`: name, dotted path, value.
pub(super) fn members<'a>(
    value: &'a Value,
    field: &'a str,
) -> Result<impl Iterator<Item = (&'a str, String, &'a Value)>, ParamError> {
    let object = value.as_object().ok_or_else(|| {
        ParamError::new(
            if field.is_empty() { "params" } else { field },
            "expected an object",
        )
    })?;
    Ok(object.iter().map(move |(name, value)| {
        let at = if field.is_empty() {
            name.clone()
        } else {
            format!("{field}.{name}")
        };
        (name.as_str(), at, value)
    }))
}

pub(super) fn unknown_key(field: String) -> ParamError {
    ParamError::new(field, "unknown key")
}

pub(super) fn text(value: &Value, field: &str) -> Result<String, ParamError> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| ParamError::new(field, "expected a string"))
}

pub(super) fn boolean(value: &Value, field: &str) -> Result<bool, ParamError> {
    value
        .as_bool()
        .ok_or_else(|| ParamError::new(field, "expected true or false"))
}

pub(super) fn word<W: FromStr<Err: std::fmt::Display>>(
    value: &Value,
    field: &str,
) -> Result<W, ParamError> {
    let text = value
        .as_str()
        .ok_or_else(|| ParamError::new(field, "expected a string"))?;
    text.parse()
        .map_err(|error| ParamError::new(field, format!("{error}")))
}

fn limit(value: &Value, field: &str) -> Result<u16, ParamError> {
    // The strict parser does not treat a number with a fraction or an exponent as an integer.
    let integer = value.as_u64().and_then(|limit| u16::try_from(limit).ok());
    integer
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| ParamError::new(field, format!("expected an integer from 1 to {MAX_LIMIT}")))
}

fn asks_for_webtty(value: &Value, field: &str) -> Result<bool, ParamError> {
    match value {
        Value::Object(_) => match members(value, field)?.next() {
            Some((_, at, _)) => Err(unknown_key(at)),
            None => Ok(true),
        },
        _ => boolean(value, field),
    }
}

fn form_decode(text: &str) -> Option<Vec<u8>> {
    crate::query_credential::percent_decode(text.replace('+', " ").as_bytes())
}

/// Maximum `limit`: a page that a person or a program can still handle at a time.
pub const MAX_LIMIT: u16 = 1000;

/// Far above any filter that a person writes. Parsing a document of this size costs little compared
/// to a request.
const PARAMS_LIMITS: Limits = Limits {
    bytes: 16 * 1024,
    depth: 32,
};
