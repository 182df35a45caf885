use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An id of a stored row: 63 bits, ordered by time, shown as exactly 11 base62 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(i64);

/// What is not an [`Id`].
#[derive(Debug, PartialEq, Eq)]
pub struct NotAnId;

impl Id {
    /// How many characters an id has.
    pub const LENGTH: usize = 11;

    /// From an `id` column.
    pub fn from_row(row: i64) -> Self {
        Self(row)
    }

    /// The value of an `id` column.
    pub fn row(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never negative: Ids sets no sign bit, and FromStr takes none.
        write!(f, "{:0>11}", base62::encode(self.0.unsigned_abs()))
    }
}

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text.len() != Self::LENGTH {
            return Err(NotAnId);
        }
        let number = base62::decode(text).map_err(|_| NotAnId)?;
        i64::try_from(number).map(Self).map_err(|_| NotAnId)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse()
            .map_err(|NotAnId| de::Error::custom(format_args!("\"{text}\" is not an ID")))
    }
}

/// Makes ids: 41 bits of milliseconds, 12 bits of count, 10 bits that tell processes of one store apart.
pub(super) struct Ids {
    /// Time and count of the newest id.
    last: AtomicI64,
    process: i64,
}

/// 2026-01-01T00:00:00Z; 41 bits of milliseconds reach from there to 2095.
const EPOCH_MS: i64 = 1_767_225_600_000;
const COUNT_BITS: u32 = 12;
const PROCESS_BITS: u32 = 10;

impl Ids {
    /// `opening` counts up with each process that opens the store, so no two of 1024 in a row share their part.
    pub(super) fn new(opening: i64) -> Self {
        Self {
            last: AtomicI64::new(0),
            process: opening & ((1 << PROCESS_BITS) - 1),
        }
    }

    /// The next id. Goes on counting when the clock stands still or goes back.
    pub(super) fn next(&self, now_ms: i64) -> Id {
        let time = (now_ms - EPOCH_MS).max(1) << COUNT_BITS;
        let step = |last: i64| time.max(last + 1);
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                Some(step(last))
            });
        let newest = step(last.unwrap_or_else(|unchanged| unchanged));
        Id((newest << PROCESS_BITS) | self.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-A-007
    #[test]
    fn an_id_is_eleven_base62_characters_and_reads_back() {
        for row in [0, 1, 61, 62, i64::MAX] {
            let text = Id(row).to_string();
            assert_eq!(text.len(), Id::LENGTH, "{text}");
            assert_eq!(text.parse(), Ok(Id(row)));
        }
        for text in [
            "",
            "0kGogHmaqv",
            "0kGogHmaqvZ0",
            "0kGogHmaqv-",
            "zzzzzzzzzzz",
            "0kGogHmaqé",
        ] {
            assert_eq!(text.parse::<Id>(), Err(NotAnId), "{text}");
        }
    }

    #[test]
    fn ids_rise_though_the_clock_goes_back_and_differ_between_processes() {
        let (one, two) = (Ids::new(1), Ids::new(2));
        let now = EPOCH_MS + 1_000;
        let ids: Vec<Id> = [now, now, now - 500, now + 1, now + 1]
            .map(|now| one.next(now))
            .to_vec();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        assert!(ids.iter().map(Id::to_string).is_sorted());
        assert_ne!(one.next(now + 9), two.next(now + 9));
        assert!(
            one.next(now + 10) < two.next(now + 11),
            "time counts before the process"
        );
    }

    #[test]
    fn threads_share_no_id() {
        let ids = Ids::new(7);
        let mut all: Vec<Id> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..5_000).map(|_| ids.next(EPOCH_MS)).collect::<Vec<_>>()))
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 20_000);
    }
}
