//! Lists of the platform as candidates for an id.

use api::control::{MAX_PAGE_SIZE, Operation};
use serde::de::DeserializeOwned;

use super::Session;
use crate::{
    failure::Failure,
    id_prefix::{Candidate, Candidates},
};

impl Session {
    /// The objects of a list, from its pages up to [`MAX_PAGES`]. `ids` fill the placeholders of its
    /// path, and `of_page` converts a page.
    pub(crate) async fn candidates<L: DeserializeOwned>(
        &self,
        operation: &'static Operation,
        ids: &[&str],
        of_page: impl Fn(L) -> Vec<Candidate>,
    ) -> Result<Candidates, Failure> {
        let mut candidates = Candidates {
            all: Vec::new(),
            is_truncated: true,
        };
        for page in 1..=MAX_PAGES {
            let call = self.platform.call(operation, ids);
            let list = call
                .query("page", Some(page))
                .query("pageSize", Some(MAX_PAGE_SIZE))
                .answer()
                .await?;
            let items = of_page(list);
            let is_last = items.len() < usize::try_from(MAX_PAGE_SIZE).unwrap_or(usize::MAX);
            candidates.all.extend(items);
            if is_last {
                candidates.is_truncated = false;
                break;
            }
        }
        Ok(candidates)
    }
}

/// Pages that are read: two thousand objects. In a longer list, objects need their complete ids.
const MAX_PAGES: u32 = 20;
