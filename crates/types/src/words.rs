//! Macros for string enums and their schemas.

/// A value that the field does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {expected}")]
pub struct UnknownWord {
    pub(crate) expected: &'static str,
}

/// Gives an enum the schema of its values. (The derive macro does not see values that another macro
/// wrote.)
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

/// Defines a string enum: names, parsing, printing and schema from one list.
macro_rules! words {
    ($($(#[doc = $doc:literal])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal),+ $(,)? })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        crate::words::schema!($name, concat!($($doc),*), [$($word),+]);

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(given: &str) -> Result<Self, $crate::words::UnknownWord> {
                match given {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::words::UnknownWord { expected: concat!($("`", $word, "` "),+).trim_ascii_end() }),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    )*};
}

pub(crate) use words;
