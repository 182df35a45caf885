//! What calls cost, by the extension `x-chandlery-cost` (R-C-199). `docs/openapi.md` describes it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Broken, Operation, input};

/// What calls of an operation cost, and the caps that callers may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Thousandths of a cent.
    call: u64,
    /// Thousandths of a cent.
    record: u64,
    /// JSON pointer to the list of records in an answer; empty when the answer is the list. `None` when the document
    /// does not say where it is.
    pub records: Option<String>,
    cap: Option<CostCap>,
    record_cap: Option<CostCap>,
}

/// A cap in cents that is an argument of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostCap {
    pub(super) argument: &'static str,
    pub min: u64,
    pub max: u64,
    /// What holds when the caller leaves it out.
    pub default: Option<u64>,
    pub(super) goes: Goes,
    /// What it is called upstream.
    pub(super) name: String,
}

/// Where a cap is told upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goes {
    /// It holds in the gateway alone.
    Nowhere,
    Query,
    Header,
    Body,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Extension {
    #[serde(default)]
    cents: f64,
    #[serde(default)]
    cents_per_record: f64,
    records: Option<String>,
    max_cents: Option<Cap>,
    max_cents_per_record: Option<Cap>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cap {
    #[serde(default)]
    min: u64,
    max: u64,
    default: Option<u64>,
    r#in: Option<String>,
    name: Option<String>,
}

/// What the operation says. A mistake in it skips the operation: a cap that is silently none would be worse.
pub(super) fn read(operation: &Value) -> Result<Option<Cost>, Broken> {
    let extension = &operation["x-chandlery-cost"];
    if extension.is_null() {
        return Ok(None);
    }
    let wrong = |problem: String| Broken::new(format!("x-chandlery-cost: {problem}"));
    let extension = Extension::deserialize(extension).map_err(|error| wrong(error.to_string()))?;
    let Extension {
        cents,
        cents_per_record,
        records,
        max_cents,
        max_cents_per_record,
    } = extension;
    let price =
        |cents| thousandths(cents).ok_or_else(|| wrong(format!("{cents} is no price in cents")));
    Ok(Some(Cost {
        call: price(cents)?,
        record: price(cents_per_record)?,
        records,
        cap: max_cents
            .map(|cap| cap.read("max_cost_cents"))
            .transpose()
            .map_err(wrong)?,
        record_cap: max_cents_per_record
            .map(|cap| cap.read("max_cost_cents_per_record"))
            .transpose()
            .map_err(wrong)?,
    }))
}

impl Cap {
    fn read(self, argument: &'static str) -> Result<CostCap, String> {
        let Self {
            min,
            max,
            default,
            r#in,
            name,
        } = self;
        if min > max || default.is_some_and(|default| !(min..=max).contains(&default)) {
            return Err(format!("{argument}: min ≤ default ≤ max does not hold"));
        }
        #[expect(clippy::cast_precision_loss, reason = "only its size is looked at")]
        if max as f64 > MOST_CENTS {
            return Err(format!("{argument}: max is more than {MOST_CENTS} cents"));
        }
        let goes = match r#in.as_deref() {
            None => Goes::Nowhere,
            Some("query") => Goes::Query,
            Some("header") => Goes::Header,
            Some("body") => Goes::Body,
            Some(other) => {
                return Err(format!("`in` is {other}; write query, header or body"));
            }
        };
        let name = name.unwrap_or_else(|| argument.to_owned());
        if !input::is_name(&name) {
            return Err(format!(
                "{argument}: the name it has upstream cannot be sent"
            ));
        }
        Ok(CostCap {
            argument,
            min,
            max,
            default,
            goes,
            name,
        })
    }
}

/// Neither prices nor caps are more.
const MOST_CENTS: f64 = 1e9;

/// `None` for what is no price.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in range"
)]
fn thousandths(cents: f64) -> Option<u64> {
    (0.0..=MOST_CENTS)
        .contains(&cents)
        .then(|| (cents * 1_000.0).round() as u64)
}

impl Cost {
    pub(super) fn caps(&self) -> impl Iterator<Item = &CostCap> {
        self.cap.iter().chain(&self.record_cap)
    }
}

/// All that is said of it, in few words.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            record,
            records,
            cap: _,
            record_cap: _,
        } = self;
        let cents = |thousandths: u64| thousandths as f64 / 1000.0;
        write!(f, "costs {} cents", cents(*call))?;
        if *record > 0 {
            let of = records.as_deref().unwrap_or("unknown");
            write!(f, " and {} for each record of {of:?}", cents(*record))?;
        }
        for cap in self.caps() {
            let CostCap {
                argument,
                min,
                max,
                default,
                goes,
                name,
            } = cap;
            write!(f, ", {argument} {min} to {max}")?;
            if let Some(default) = default {
                write!(f, ", else {default}")?;
            }
            match goes {
                Goes::Nowhere => {}
                Goes::Query => write!(f, ", in query {name}")?,
                Goes::Header => write!(f, ", in header {name}")?,
                Goes::Body => write!(f, ", in body {name}")?,
            }
        }
        Ok(())
    }
}

impl CostCap {
    /// The argument's schema: the range stands in the description too, for those who read no bounds.
    pub(super) fn schema(&self) -> Value {
        let what = if self.argument == "max_cost_cents" {
            "this call"
        } else {
            "each record"
        };
        let Self { min, max, .. } = self;
        let mut text = format!("The most that {what} may cost, in cents: {min} to {max}");
        if let Some(default) = self.default {
            text.push_str(&format!("; {default} when left out"));
        }
        text.push('.');
        let mut schema =
            json!({"type": "integer", "minimum": min, "maximum": max, "description": text});
        if let Some(default) = self.default {
            schema["default"] = default.into();
        }
        schema
    }

    /// The cap of a call with these arguments, if it has one.
    pub(super) fn of(&self, arguments: &BTreeMap<String, &RawValue>) -> Option<u64> {
        match self.given(arguments) {
            Some(given) => whole(given),
            None => self.default,
        }
    }

    /// Whether it is a number that the schema does not allow: no call is made with it.
    fn is_refused(&self, arguments: &BTreeMap<String, &RawValue>) -> bool {
        let is_fine = |given| whole(given).is_some_and(|cap| (self.min..=self.max).contains(&cap));
        self.given(arguments).is_some_and(|given| !is_fine(given))
    }

    fn given<'a>(&self, arguments: &BTreeMap<String, &'a RawValue>) -> Option<&'a str> {
        let given = arguments.get(self.argument).map(|given| given.get());
        given.filter(|given| *given != "null")
    }
}

/// An integer as JSON Schema has it: `5`, `5.0` and `5e0` alike.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and in range"
)]
fn whole(text: &str) -> Option<u64> {
    serde_json::from_str(text).ok().or_else(|| {
        let number: f64 = serde_json::from_str(text).ok()?;
        let is_whole = number.fract() == 0.0 && (0.0..=MOST_CENTS).contains(&number);
        is_whole.then_some(number as u64)
    })
}

impl Operation {
    /// What a call with these arguments cost, in cents, when its answer had `records` records.
    ///
    /// Rounded up. With `None`, where nobody knows how many there were, it is the cap if there is one, or else one
    /// record's price. No more than the caps; nothing where the document says nothing.
    pub fn cost(&self, arguments: &RawValue, records: Option<u64>) -> u64 {
        let Some(cost) = &self.cost else { return 0 };
        let arguments = serde_json::from_str(arguments.get()).unwrap_or_default();
        let cap = cost.cap.as_ref().and_then(|cap| cap.of(&arguments));
        let most = cap.map_or(u64::MAX, |cap| cap.saturating_mul(1_000));
        let record_cap = cost.record_cap.as_ref().and_then(|cap| cap.of(&arguments));
        let record = record_cap.map_or(cost.record, |cap| {
            cost.record.min(cap.saturating_mul(1_000))
        });
        let priced = match (records, cap) {
            (Some(records), _) => cost.call.saturating_add(record.saturating_mul(records)),
            (None, Some(_)) if record > 0 => most,
            (None, _) => cost.call.saturating_add(record),
        };
        priced.min(most).div_ceil(1_000)
    }

    /// The most that a call with these arguments can cost, in cents; `None` when nothing bounds it. Nothing where a cap is
    /// not in its range, since [`Self::request`] refuses the call.
    pub fn cost_cap(&self, arguments: &RawValue) -> Option<u64> {
        let Some(cost) = &self.cost else {
            return Some(0);
        };
        let arguments = serde_json::from_str(arguments.get()).unwrap_or_default();
        // Whoever reads that a limit is used up does not learn of the range.
        if cost.caps().any(|cap| cap.is_refused(&arguments)) {
            return Some(0);
        }
        let cap = cost.cap.as_ref().and_then(|cap| cap.of(&arguments));
        let fixed = (cost.record == 0).then(|| cost.call.div_ceil(1_000));
        match (cap, fixed) {
            (Some(cap), Some(fixed)) => Some(cap.min(fixed)),
            (cap, fixed) => cap.or(fixed),
        }
    }
}
