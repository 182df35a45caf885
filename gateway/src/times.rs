//! Times as they are shown, and pauses as they are made.

use std::time::Duration;

use jiff::Timestamp;

/// Unix milliseconds as RFC 3339.
pub(crate) fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

/// `base`, give or take a quarter: those who were started together, or failed together, do not come back together.
pub(crate) fn jittered(base: Duration) -> Duration {
    let mut random = [0];
    let _ = getrandom::fill(&mut random);
    base.mul_f64(0.75 + 0.5 * f64::from(random[0]) / 255.0)
}
