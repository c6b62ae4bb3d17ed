//! Conversion of rows into values: every error names table, column and row.

use jiff::Timestamp;
use sqlx::Row as _;
use sqlx::ValueRef as _;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

use crate::error::Bug;

/// A row of either database.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A value that is read from one row.
pub(crate) trait Record: Sized {
    fn from_row(row: &Row) -> Result<Self, Bug>;
}

/// A value that is read from one column. The error describes the expected value, never the actual
/// one.
pub(crate) trait Column: Sized {
    fn read(row: &Row, column: &str) -> Result<Self, String>;
}

/// Reads one cell as this type, from either database.
macro_rules! cell {
    ($row:expr, $column:expr, $kind:ty) => {
        match $row {
            Row::Sqlite(row) => row.try_get::<$kind, _>($column),
            Row::Postgres(row) => row.try_get::<$kind, _>($column),
        }
    };
}

impl Row {
    fn is_null(&self, column: &str) -> Result<bool, String> {
        let null = match self {
            Self::Sqlite(row) => row.try_get_raw(column).map(|cell| cell.is_null()),
            Self::Postgres(row) => row.try_get_raw(column).map(|cell| cell.is_null()),
        };
        null.map_err(|error| error.to_string())
    }

    /// Reads one column; `table` is for the error.
    pub(crate) fn column<T: Column>(
        &self,
        table: &'static str,
        column: &'static str,
    ) -> Result<T, Bug> {
        T::read(self, column).map_err(|message| Bug::Row {
            table,
            column,
            row: cell!(self, "id", String).unwrap_or_else(|_| "without an id".to_owned()),
            message,
        })
    }
}

impl Column for String {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        cell!(row, column, String).map_err(|error| error.to_string())
    }
}

impl Column for i64 {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        cell!(row, column, i64).map_err(|error| error.to_string())
    }
}

impl Column for bool {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        cell!(row, column, bool).map_err(|error| error.to_string())
    }
}

impl Column for Vec<u8> {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        cell!(row, column, Vec<u8>).map_err(|error| error.to_string())
    }
}

impl<T: Column> Column for Option<T> {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        if row.is_null(column)? {
            return Ok(None);
        }
        T::read(row, column).map(Some)
    }
}

impl Column for Timestamp {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        Self::from_microsecond(i64::read(row, column)?)
            .map_err(|_| "not a time in microseconds".to_owned())
    }
}

impl Column for serde_json::Value {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        json(row, column)
    }
}

impl Column for Vec<String> {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        json(row, column)
    }
}

fn json<T: serde::de::DeserializeOwned>(row: &Row, column: &str) -> Result<T, String> {
    // The parser's message can repeat parts of the value.
    serde_json::from_str(&String::read(row, column)?)
        .map_err(|_| "not the JSON that was expected".to_owned())
}

/// Defines a struct whose fields are the columns of the same names.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident from $table:literal {
        $($(#[doc = $doc:literal])* pub $field:ident: $kind:ty,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[doc = $doc])* pub $field: $kind,)+ }

        impl $crate::database::row::Record for $name {
            fn from_row(row: &$crate::database::row::Row) -> Result<Self, $crate::error::Bug> {
                Ok(Self { $($field: row.column($table, stringify!($field))?,)+ })
            }
        }
    };
}
pub(crate) use record;

impl Record for Option<i64> {
    fn from_row(row: &Row) -> Result<Self, Bug> {
        row.column("count", "n")
    }
}

impl Record for i64 {
    fn from_row(row: &Row) -> Result<Self, Bug> {
        row.column("count", "n")
    }
}

/// Defines an enum whose variants are words in a column.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $doc])* $variant,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word in the database and in JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// Returns the variant for this word, if it is valid.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl $crate::database::row::Column for $name {
            fn read(row: &$crate::database::row::Row, column: &str) -> Result<Self, String> {
                let word = String::read(row, column)?;
                Self::from_word(&word).ok_or_else(|| concat!("unknown word for ", stringify!($name)).to_owned())
            }
        }

        impl From<$name> for $crate::database::sql::Value {
            fn from(word: $name) -> Self {
                Self::from(word.as_str())
            }
        }
    };
}
pub(crate) use words;
