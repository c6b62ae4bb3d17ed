//! Paging and search, the same for every list.

use crate::database::timeline::COUNT_LIMIT;

/// Number of a page of a list, from 1, and the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    page: u32,
    page_size: u32,
}

impl Paging {
    /// Maximum page size.
    pub const MAX_SIZE: u32 = 100;
    /// Default for callers that do not choose.
    pub const DEFAULT: Self = Self {
        page: 1,
        page_size: 20,
    };

    /// Creates a paging, if the numbers are in range.
    pub fn new(page: u32, page_size: u32) -> Option<Self> {
        (page >= 1 && (1..=Self::MAX_SIZE).contains(&page_size)).then_some(Self { page, page_size })
    }

    /// Number of the page, from 1.
    pub fn page(self) -> u32 {
        self.page
    }

    /// Number of rows per page.
    pub fn page_size(self) -> u32 {
        self.page_size
    }

    /// True if the page starts after all counted rows. A database reads all rows before a page to
    /// find its start. Long lists therefore end here, and later pages are empty.
    pub(crate) fn is_beyond_count(self) -> bool {
        self.begins_at() >= COUNT_LIMIT.into()
    }

    /// Zero if the page starts after the counted rows: no list is read further.
    pub(crate) fn limit(self) -> i64 {
        if self.is_beyond_count() {
            0
        } else {
            self.page_size.into()
        }
    }

    /// At most [`COUNTED`].
    pub(crate) fn offset(self) -> i64 {
        self.begins_at().min(COUNT_LIMIT.into())
    }

    fn begins_at(self) -> i64 {
        i64::from(self.page - 1) * i64::from(self.page_size)
    }
}

/// One page, and the number of rows in the whole list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The rows of this page.
    pub items: Vec<T>,
    /// Number of rows in the whole list.
    pub total: u64,
}

/// Direction of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Smallest first.
    #[default]
    Asc,
    /// Largest first.
    Desc,
}

impl Order {
    pub(crate) const ALL: [Self; 2] = [Self::Asc, Self::Desc];

    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::Asc => "ASC",
            Self::Desc => "DESC",
        }
    }
}

/// Defines the columns by which a list is sorted; the first one is the default.
macro_rules! sort_columns {
    ($(#[$meta:meta])* pub enum $name:ident {
        $(#[doc = $first_doc:literal])* $first:ident = $first_column:literal,
        $($(#[doc = $doc:literal])* $variant:ident = $column:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $first_doc])*
            #[default]
            $first,
            $($(#[doc = $doc])* $variant,)+
        }

        impl $name {
            pub(crate) const ALL: &'static [Self] = &[Self::$first, $(Self::$variant),+];

            pub(crate) fn column(self) -> &'static str {
                match self {
                    Self::$first => $first_column,
                    $(Self::$variant => $column,)+
                }
            }
        }
    };
}
pub(crate) use sort_columns;

/// Text in case-insensitive columns: full Unicode lower case, which the two databases do not
/// implement alike.
pub fn fold_case(text: &str) -> String {
    text.to_lowercase()
}

/// A LIKE pattern (with `ESCAPE '!'`) that finds the folded text anywhere. Without a search text it
/// matches everything.
pub(crate) fn like_pattern(search: Option<&str>) -> String {
    let mut pattern = String::from("%");
    for character in fold_case(search.unwrap_or_default()).chars() {
        if matches!(character, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(character);
    }
    if pattern.len() > 1 {
        pattern.push('%');
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_at_least_the_first_and_has_one_to_a_hundred_rows() {
        for (page, size) in [(0, 20), (1, 0), (1, 101)] {
            assert_eq!(Paging::new(page, size), None);
        }
        let last = Paging::new(u32::MAX, 100).unwrap();
        // No list is read that far.
        assert_eq!((last.limit(), last.offset()), (0, COUNT_LIMIT.into()));
        let counted = Paging::new(1000, 100).unwrap();
        assert_eq!((counted.limit(), counted.offset()), (100, 99_900));
        assert_eq!(Paging::new(1, 1).unwrap().offset(), 0);
        assert!(last.is_beyond_count() && Paging::new(1001, 100).unwrap().is_beyond_count());
        assert!(!Paging::new(1000, 100).unwrap().is_beyond_count());
    }

    #[test]
    fn a_search_is_for_the_text_itself() {
        assert_eq!(like_pattern(Some("50%_!Ä")), "%50!%!_!!ä%");
        assert_eq!(like_pattern(Some("")), "%");
        assert_eq!(like_pattern(None), "%");
    }
}
