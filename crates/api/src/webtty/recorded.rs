//! What is found in recordings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

shapes! {
    /// Whether a recording is what was recorded.
    RecordingVerdict {
        /// It is: from the first record to the end that was kept apart from it. The end of a session
        /// that runs is where it is now.
        ok: bool,
        /// Records that are what was recorded, from the first on.
        records: u64,
        /// The hash of the last of them, in hex.
        head: String,
        /// The number of the first that is not, as decimal text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        broken_at: Option<String>,
        /// What is wrong with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        fault: Option<String>,
    }
    /// What a search found.
    RecordingSearch {
        /// Lines, of the newest session first, and of one session in their order.
        hits: Vec<RecordingHit>,
        /// Where there is more to look at: the search goes on with this as `before`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        next: Option<String>,
        /// Whether there were recordings that could not be read.
        incomplete: bool,
    }
    /// A line that was shown in a session.
    RecordingHit {
        /// The session.
        session_id: String,
        /// The record that showed it first, as decimal text.
        seq: String,
        /// When.
        #[schema(format = DateTime)]
        created_at: String,
        /// The line, without anything that a terminal acts on.
        line: String,
    }
}
