//! Pages of a list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum page size.
pub const MAX_PAGE_SIZE: u32 = 100;

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
