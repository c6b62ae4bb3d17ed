//! Pages of a list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::operation::Parameter;

/// Maximum page size.
pub const MAX_PAGE_SIZE: u32 = 100;
/// Page size without a request for another one: a screen.
pub const DEFAULT_PAGE_SIZE: u32 = 20;
/// Maximum number of a page. It keeps `page * pageSize` far below the integer limits of databases.
pub const MAX_PAGE: u32 = 1_000_000;

/// Number of the requested page.
pub(crate) const PAGE: Parameter = Parameter::integer("page", "The page, from 1.", 1, MAX_PAGE, 1);
/// Requested page size of most lists.
pub(crate) const PAGE_SIZE: Parameter = page_size("Items per page.");
/// Requested direction of a list that starts with its smallest row.
pub(crate) const ORDER: Parameter =
    Parameter::one_of("order", "The direction; default `asc`.", &["asc", "desc"]);
/// Requested direction of a list by time.
pub(crate) const TIME_ORDER: Parameter = Parameter::one_of(
    "order",
    "The direction in time; default `desc`, newest first.",
    &["asc", "desc"],
);

/// Requested page size, with a description that names the items.
pub(crate) const fn page_size(description: &'static str) -> Parameter {
    Parameter::integer("pageSize", description, 1, MAX_PAGE_SIZE, DEFAULT_PAGE_SIZE)
}

/// Defines the response of a list: the items of one page and its position.
macro_rules! page {
    ($(#[$meta:meta])* pub struct $name:ident {
        $(#[$doc:meta])* pub $items:ident: Vec<$item:ty>,
        $(#[$position:meta])* pub paging: Paging,
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            $(#[$doc])*
            pub $items: Vec<$item>,
            $(#[$position])*
            #[serde(flatten)]
            pub paging: $crate::control::Paging,
        }
    };
}
pub(crate) use page;

/// Position of a page in a list; flattened into the response beside its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Paging {
    /// Number of this page, from 1.
    pub page: u32,
    /// Items of a full page.
    pub page_size: u32,
    /// Number of items in the whole list.
    pub total: u64,
    /// Number of pages of the whole list.
    pub total_pages: u64,
}

impl Paging {
    /// The position of a page in a list of `total` items.
    pub const fn new(page: u32, page_size: u32, total: u64) -> Self {
        let size = if page_size == 0 { 1 } else { page_size as u64 };
        Self {
            page,
            page_size,
            total,
            total_pages: total.div_ceil(size),
        }
    }
}
