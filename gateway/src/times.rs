//! Times as they are shown.

use jiff::Timestamp;

/// Unix milliseconds as RFC 3339.
pub(crate) fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}
