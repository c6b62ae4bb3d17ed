//! Results of verifying and searching recordings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

shapes! {
    /// Result of the verification of a recording.
    RecordingVerdict {
        /// True if all records are intact, from the first to the separately stored end. The end of
        /// a running session is its current end.
        ok: bool,
        /// Number of intact records from the start.
        records: u64,
        /// The hash of the last intact record, in hex.
        head: String,
        /// The number of the first invalid record, as decimal text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        broken_at: Option<String>,
        /// Description of the error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        fault: Option<String>,
    }
    /// Result of a search.
    RecordingSearch {
        /// Matching lines. The newest session is first; the lines of one session are in their
        /// order.
        hits: Vec<RecordingHit>,
        /// Present if there is more to search: use it as `before` of the next search.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        next: Option<String>,
        /// True if some recordings could not be read.
        incomplete: bool,
    }
    /// A line that was shown in a session.
    RecordingHit {
        /// The session.
        session_id: String,
        /// The record that first showed the line, as decimal text.
        seq: String,
        /// Time when the line was shown.
        #[schema(format = DateTime)]
        created_at: String,
        /// The line, without terminal control sequences.
        line: String,
    }
}
