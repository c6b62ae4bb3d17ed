//! Schemas of enums that are words on the wire.

/// Gives an enum the schema of its words. (The derive does not see words that a macro wrote.)
macro_rules! schema {
    ($name:ident, $description:expr, [$($word:expr),+]) => {
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::schema::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some($description.trim()))
                    .enum_values(Some([$($word),+]))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}

pub(crate) use schema;
