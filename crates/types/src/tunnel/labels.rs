//! Labels of clients and tunnels.

use std::collections::BTreeMap;

use crate::tunnel::PropertyError;

/// Labels of a client or of a tunnel.
pub type Labels = BTreeMap<String, String>;

/// Validates a label map: at most [`MAX_LABELS`] entries, keys of 1 to [`MAX_LABEL_KEY_BYTES`]
/// bytes, values of at most [`MAX_LABEL_VALUE_BYTES`] bytes, no control characters.
pub fn check_labels(labels: &Labels) -> Result<(), PropertyError> {
    if labels.len() > MAX_LABELS {
        return Err(PropertyError::new(
            "labels",
            format!("at most {MAX_LABELS} labels"),
        ));
    }
    for (key, value) in labels {
        let key_fits = (1..=MAX_LABEL_KEY_BYTES).contains(&key.len());
        if !key_fits || key.chars().any(char::is_control) {
            let message = format!(
                "a label key is 1 to {MAX_LABEL_KEY_BYTES} bytes without control characters"
            );
            return Err(PropertyError::new("labels", message));
        }
        if value.len() > MAX_LABEL_VALUE_BYTES || value.chars().any(char::is_control) {
            let message = format!(
                "a label value is at most {MAX_LABEL_VALUE_BYTES} bytes without control characters"
            );
            return Err(PropertyError::new(format!("labels.{key}"), message));
        }
    }
    Ok(())
}

/// Limits the size that one tunnel or client adds to every list and event.
pub const MAX_LABELS: usize = 64;
/// Enough for a reversed domain name and a path.
pub const MAX_LABEL_KEY_BYTES: usize = 128;
/// Enough for a signed statement: a registered `WebTTY` server authenticates itself in a label.
pub const MAX_LABEL_VALUE_BYTES: usize = 4096;
