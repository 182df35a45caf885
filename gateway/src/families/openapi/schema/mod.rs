//! Schemas of documents as JSON Schema 2020-12 without references.

mod value;
mod write;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Broken, pointer};

pub(super) use write::{DETAILS, MAX_SIZE, Stop, Writer};

/// How many schemas are merged into one, and how many properties one has, before the rest is ignored: a bound on the
/// work that a hostile document makes.
pub(super) const MAX_WIDTH: usize = 1_000;

/// How many properties are looked at, in all the schemas that are merged into one.
const MAX_PROPERTIES: usize = 10_000;

/// What is looked at beside the fields of [`Flat`]; the rest is not JSON Schema, or is left to the upstream to check.
const KEYWORDS: &[&str] = &[
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "deprecated",
    "description",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "patternProperties",
    "readOnly",
    "title",
    "type",
    "uniqueItems",
];

/// One schema with its references followed and its `allOf` merged; what it holds is still the document's.
///
/// Where two parts say different things, the outer one counts, and the earlier one of siblings.
#[derive(Debug, Default)]
pub(super) struct Flat<'a> {
    keywords: Vec<(&'a str, &'a Value)>,
    /// All schemas of a property hold.
    pub(super) properties: BTreeMap<&'a str, Vec<&'a Value>>,
    pub(super) required: Vec<&'a str>,
    /// Of each list, one holds.
    pub(super) choices: Vec<Vec<&'a Value>>,
    pub(super) nullable: bool,
    /// Some part allows no other properties.
    closed: bool,
    additional: Option<&'a Value>,
    items: Vec<&'a Value>,
    /// The references followed.
    pub(super) references: Vec<&'a str>,
    /// How many schemas it was merged from.
    pub(super) parts: usize,
    /// How many properties were looked at.
    looked_at: usize,
}

impl<'a> Flat<'a> {
    /// All of `schemas` together.
    pub(super) fn of(root: &'a Value, schemas: &[&'a Value]) -> Result<Self, Broken> {
        let mut flat = Self::default();
        // A stack, so the first comes last.
        let mut open: Vec<&'a Value> = schemas.iter().rev().copied().collect();
        while let Some(schema) = open.pop() {
            let Value::Object(schema) = schema else {
                continue;
            };
            flat.parts += 1;
            if flat.parts > MAX_WIDTH {
                break;
            }
            if let Some(Value::Array(all)) = schema.get("allOf") {
                open.extend(all.iter().rev());
            }
            if let Some(Value::String(reference)) = schema.get("$ref")
                && !flat.references.contains(&reference.as_str())
            {
                flat.references.push(reference);
                open.push(pointer::target(root, reference)?);
            }
            for keyword in ["oneOf", "anyOf"] {
                if let Some(Value::Array(branches)) = schema.get(keyword) {
                    flat.choose(branches, &mut open);
                }
            }
            flat.take(schema);
        }
        Ok(flat)
    }

    fn take(&mut self, schema: &'a serde_json::Map<String, Value>) {
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                ("$ref" | "allOf" | "oneOf" | "anyOf", _) => {}
                ("properties", Value::Object(properties)) => {
                    let room = MAX_WIDTH.min(MAX_PROPERTIES - self.looked_at);
                    self.looked_at += room.min(properties.len());
                    for (name, property) in properties.iter().take(room) {
                        // Draft 4 had `true` for anything; `false` is for a property that must not be there.
                        if *property != false {
                            self.properties.entry(name).or_default().push(property);
                        }
                    }
                }
                ("required", Value::Array(names)) => {
                    let names = names.iter().take(MAX_WIDTH);
                    self.required.extend(names.filter_map(Value::as_str));
                }
                ("additionalProperties", Value::Bool(false)) => self.closed = true,
                ("additionalProperties", Value::Bool(true) | Value::Object(_)) => {
                    self.additional.get_or_insert(value);
                }
                ("items", Value::Object(_)) => self.items.push(value),
                ("nullable", Value::Bool(nullable)) => self.nullable |= nullable,
                (keyword, value) => {
                    if KEYWORDS.contains(&keyword) && self.get(keyword).is_none() {
                        self.keywords.push((keyword, value));
                    }
                }
            }
        }
    }

    /// A branch `null` makes the rest nullable; a single branch holds, so it is merged; branches that only say which
    /// properties are required together are not told.
    fn choose(&mut self, branches: &'a [Value], open: &mut Vec<&'a Value>) {
        const WORDS: &[&str] = &["required", "title", "description", "not"];
        let is_null = |branch: &&Value| {
            branch["type"] == "null" || branch["enum"] == serde_json::json!([null])
        };
        let rest: Vec<&Value> = branches.iter().filter(|branch| !is_null(branch)).collect();
        self.nullable |= rest.len() < branches.len();
        let says_more = |branch: &&Value| {
            branch.as_object().is_some_and(|branch| {
                branch
                    .keys()
                    .any(|keyword| !WORDS.contains(&keyword.as_str()))
            })
        };
        match rest.as_slice() {
            [] => {}
            [one] => open.push(one),
            several if several.iter().any(says_more) => {
                self.choices
                    .push(several.iter().take(MAX_WIDTH).copied().collect());
            }
            _ => {}
        }
    }

    /// The value of a keyword of [`KEYWORDS`].
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        let mut keywords = self.keywords.iter();
        keywords
            .find(|(name, _)| *name == keyword)
            .map(|(_, value)| *value)
    }

    pub(super) fn is_true(&self, keyword: &str) -> bool {
        self.get(keyword).is_some_and(|value| *value == true)
    }

    pub(super) fn text(&self, keyword: &str) -> Option<&'a str> {
        self.get(keyword).and_then(Value::as_str)
    }

    /// Its items' schemas, which all hold.
    pub(super) fn items(&self) -> Vec<&'a Value> {
        self.items.clone()
    }

    /// The types it allows, without null; none when it says nothing.
    pub(super) fn types(&self) -> Vec<&'static str> {
        let types = self.get("type").map(value::types);
        let mut types = types.unwrap_or_default();
        if types.is_empty() {
            let inferred = [
                (
                    !self.properties.is_empty() || self.additional.is_some(),
                    "object",
                ),
                (!self.items.is_empty(), "array"),
            ];
            // Properties beside `oneOf` say nothing about the branches that are no objects.
            let inferred = inferred
                .into_iter()
                .find(|(says, _)| *says && self.choices.is_empty());
            types.extend(inferred.map(|(_, name)| name));
        }
        types
    }

    pub(super) fn has_type(&self, name: &str) -> bool {
        self.types().contains(&name)
    }

    pub(super) fn is_nullable(&self) -> bool {
        let listed = |types: &Value| {
            types
                .as_array()
                .is_some_and(|types| types.iter().any(|name| name == "null" || name.is_null()))
        };
        self.nullable || self.get("type").is_some_and(listed)
    }

    /// An object whose properties are known, and which has one form only.
    pub(super) fn is_record(&self) -> bool {
        !self.properties.is_empty() && self.choices.is_empty() && self.types() == ["object"]
    }

    /// Text in the schema's eyes, bytes on the wire.
    pub(super) fn is_binary(&self) -> bool {
        let could_be = self.types().is_empty() || self.has_type("string");
        let is_media =
            self.get("contentMediaType").is_some() && self.get("contentEncoding").is_none();
        let is_file = self.text("type") == Some("file");
        is_file || could_be && (self.text("format") == Some("binary") || is_media)
    }

    /// What other properties may be; `None` where the document does not speak of any.
    pub(super) fn open(&self) -> Option<&'a Value> {
        self.additional.filter(|_| !self.closed)
    }
}
