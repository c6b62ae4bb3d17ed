//! Schemas of the document, and members that several parts share.

use utoipa::openapi::{RefOr, Schema};

/// Maximum length of a user-chosen name in a project, in characters.
pub const MAX_NAME_CHARS: usize = 100;
/// Maximum length of a user-chosen description in a project, in characters: a few sentences.
pub const MAX_DESCRIPTION_CHARS: usize = 1_000;

/// Component schemas by name.
pub type Schemas = Vec<(String, RefOr<Schema>)>;

/// For serde's `with`: a member that may be absent. It is refused if it is present and `null`, unless
/// its type has a value for `null`: an `Option<Option<T>>` distinguishes the three states.
pub(crate) mod not_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        T::deserialize(from).map(Some)
    }
}

/// Adds a type and the types it contains to the component schemas.
pub(crate) fn add<T: utoipa::ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}
