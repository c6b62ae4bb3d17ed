//! Lists of the platform as candidates for an id.

use api::control::{MAX_PAGE_SIZE, Operation};
use serde::de::DeserializeOwned;

use super::Session;
use crate::{failure::Failure, id_prefix::Candidate};

impl Session {
    /// The objects of a list, from all of its pages. `ids` fill the placeholders of its path, and
    /// `of_page` converts a page.
    pub(crate) async fn candidates<L: DeserializeOwned>(
        &self,
        operation: &'static Operation,
        ids: &[&str],
        of_page: impl Fn(L) -> Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Failure> {
        let mut all = Vec::new();
        for page in 1..=MAX_PAGES {
            let call = self.platform.call(operation, ids);
            let list = call
                .query("page", Some(page))
                .query("pageSize", Some(MAX_PAGE_SIZE))
                .answer()
                .await?;
            let items = of_page(list);
            let is_last = items.len() < usize::try_from(MAX_PAGE_SIZE).unwrap_or(usize::MAX);
            all.extend(items);
            if is_last {
                break;
            }
        }
        Ok(all)
    }
}

/// Pages that are read: two thousand objects. Objects beyond them need their complete id.
const MAX_PAGES: u32 = 20;
