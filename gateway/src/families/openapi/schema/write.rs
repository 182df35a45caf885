//! Writes schemas out: references in place, recursion and size cut.

use serde_json::{Map, Value, json};

use super::super::{Broken, input, text};
use super::{Flat, value};

/// About how large the schemas of one operation may be together, in bytes of JSON.
pub(in crate::families::openapi) const MAX_SIZE: usize = 16 * 1024;

/// How much is told of schemas.
#[derive(Clone, Copy, Debug)]
pub(in crate::families::openapi) struct Detail {
    /// How many objects and lists lie in each other.
    depth: usize,
    /// How often a schema may lie in itself.
    repeats: usize,
    /// Characters of a description.
    description: usize,
    /// Constraints and examples are told too.
    full: bool,
}

/// From all that is of use to very little: an operation has the first that fits.
pub(in crate::families::openapi) const DETAILS: &[Detail] = &[
    detail(9, 1, 2_000, true),
    detail(6, 0, 500, true),
    detail(4, 0, 200, true),
    detail(2, 0, 120, true),
    detail(1, 0, 80, true),
    detail(0, 0, 60, false),
];

const fn detail(depth: usize, repeats: usize, description: usize, full: bool) -> Detail {
    Detail {
        depth,
        repeats,
        description,
        full,
    }
}

/// Why a schema was not written.
#[derive(Debug)]
pub(in crate::families::openapi) enum Stop {
    TooLarge,
    Broken(Broken),
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Writes the schemas of one operation.
pub(in crate::families::openapi) struct Writer<'a> {
    root: &'a Value,
    detail: Detail,
    /// The references that the schema at hand lies in.
    path: Vec<&'a str>,
    left: usize,
}

impl<'a> Writer<'a> {
    pub(in crate::families::openapi) fn new(root: &'a Value, detail: Detail, size: usize) -> Self {
        Self {
            root,
            detail,
            path: Vec::new(),
            left: size,
        }
    }

    /// One schema that says what all of `schemas` say; `description` takes the place of theirs.
    pub(in crate::families::openapi) fn write(
        &mut self,
        schemas: &[&'a Value],
        description: Option<&str>,
    ) -> Result<Map<String, Value>, Stop> {
        let flat = Flat::of(self.root, schemas)?;
        self.flat(&flat, description, 0)
    }

    /// How many bytes of its size are left.
    pub(in crate::families::openapi) fn left(&self) -> usize {
        self.left
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Stop> {
        self.left = self.left.checked_sub(bytes).ok_or(Stop::TooLarge)?;
        Ok(())
    }

    fn put(
        &mut self,
        schema: &mut Map<String, Value>,
        keyword: &str,
        value: Value,
    ) -> Result<(), Stop> {
        self.spend(keyword.len() + 4 + size(&value))?;
        schema.insert(keyword.to_owned(), value);
        Ok(())
    }

    fn flat(
        &mut self,
        flat: &Flat<'a>,
        description: Option<&str>,
        depth: usize,
    ) -> Result<Map<String, Value>, Stop> {
        // Work counts as well: a document may have much that is not written.
        self.spend(flat.parts * 2)?;
        let mut schema = Map::new();
        let types = flat.types();
        let is_deep =
            !flat.properties.is_empty() || !flat.choices.is_empty() || !flat.items.is_empty();
        let lies_in_itself = flat.references.iter().any(|reference| {
            self.path.iter().filter(|one| *one == reference).count() > self.detail.repeats
        });
        let is_cut = is_deep && (depth >= self.detail.depth || lies_in_itself);
        self.types(&mut schema, flat, &types, is_cut)?;
        self.words(&mut schema, flat, description, is_cut)?;
        if self.detail.full {
            self.scalars(&mut schema, flat, &types)?;
        }
        if is_cut {
            return Ok(schema);
        }
        let kept = self.path.len();
        self.path.extend(&flat.references);
        self.record(&mut schema, flat, depth)?;
        self.list(&mut schema, flat, &types, depth)?;
        self.choices(&mut schema, flat, &types, depth)?;
        self.path.truncate(kept);
        Ok(schema)
    }

    fn types(
        &mut self,
        schema: &mut Map<String, Value>,
        flat: &Flat<'a>,
        types: &[&'static str],
        is_cut: bool,
    ) -> Result<(), Stop> {
        let nullable = flat.is_nullable();
        let values = flat.get("enum").and_then(|values| values.as_array());
        let mut values: Vec<Value> = values
            .into_iter()
            .flatten()
            .filter_map(|one| value::coerce(one, types, nullable))
            .collect();
        let constant = flat.get("const");
        if let Some(constant) = constant.and_then(|one| value::coerce(one, types, nullable)) {
            values = vec![constant];
        }
        let mut types = types.to_vec();
        if types.is_empty() && !values.is_empty() && values.iter().all(Value::is_string) {
            types.push("string");
        }
        if types.is_empty() && is_cut && flat.choices.is_empty() {
            types.push("object");
        }
        if nullable && !types.is_empty() {
            types.push("null");
            if !values.is_empty() && !values.contains(&Value::Null) {
                values.push(Value::Null);
            }
        }
        match types.as_slice() {
            [] => {}
            [one] => self.put(schema, "type", (*one).into())?,
            several => self.put(schema, "type", json!(several))?,
        }
        match values.as_slice() {
            [] => Ok(()),
            [one] if constant.is_some() => self.put(schema, "const", one.clone()),
            _ => self.put(schema, "enum", values.into()),
        }
    }

    fn words(
        &mut self,
        schema: &mut Map<String, Value>,
        flat: &Flat<'a>,
        description: Option<&str>,
        is_cut: bool,
    ) -> Result<(), Stop> {
        let own = description.filter(|text| !text.trim().is_empty());
        let own = own.or_else(|| flat.text("description")).unwrap_or_default();
        let mut words = text::cut(own.trim(), self.detail.description);
        if let Some(pattern) = flat.text("pattern").filter(|pattern| !is_pattern(pattern)) {
            words.push_str(&format!(" Pattern: {}", text::cut(pattern, 200)));
        }
        if is_cut {
            words.push_str(" What lies within is not shown here.");
        }
        let words = words.trim();
        if !words.is_empty() {
            self.put(schema, "description", words.into())?;
        }
        if flat.is_true("deprecated") {
            self.put(schema, "deprecated", true.into())?;
        }
        Ok(())
    }

    fn scalars(
        &mut self,
        schema: &mut Map<String, Value>,
        flat: &Flat<'a>,
        types: &[&'static str],
    ) -> Result<(), Stop> {
        let nullable = flat.is_nullable();
        for keyword in ["format", "contentEncoding", "contentMediaType"] {
            if let Some(word) = flat.text(keyword).filter(|word| word.len() <= 100) {
                self.put(schema, keyword, word.into())?;
            }
        }
        if let Some(pattern) = flat.text("pattern").filter(|pattern| is_pattern(pattern)) {
            self.put(schema, "pattern", pattern.into())?;
        }
        for (bound, strict) in [
            ("minimum", "exclusiveMinimum"),
            ("maximum", "exclusiveMaximum"),
        ] {
            // 3.0 has a boolean that makes the bound strict, 3.1 a bound of its own.
            let is_strict = flat.is_true(strict);
            for (from, to) in [
                (bound, if is_strict { strict } else { bound }),
                (strict, strict),
            ] {
                let number = flat.get(from).and_then(value::number);
                if let Some(number) = number {
                    self.put(schema, to, number.into())?;
                }
            }
        }
        let step = flat.get("multipleOf").and_then(value::number);
        if let Some(step) = step.filter(|step| step.as_f64().is_some_and(|step| step > 0.0)) {
            self.put(schema, "multipleOf", step.into())?;
        }
        for keyword in [
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
        ] {
            let count = flat.get(keyword).and_then(value::count);
            if let Some(count) = count {
                self.put(schema, keyword, count.into())?;
            }
        }
        if flat.is_true("uniqueItems") {
            self.put(schema, "uniqueItems", true.into())?;
        }
        let default = flat.get("default");
        let default = default.and_then(|one| value::coerce(one, types, nullable));
        if let Some(default) = default.filter(|one| is_short(one, 1_000)) {
            self.put(schema, "default", default)?;
        }
        let example = flat.get("example");
        let example = example.or_else(|| flat.get("examples").map(|all| &all[0]));
        let example = example.and_then(|one| value::coerce(one, types, nullable));
        let example = example.filter(|one| !one.is_null() && is_short(one, 200));
        if let (Some(example), false) = (example, schema.contains_key("enum")) {
            self.put(schema, "examples", json!([example]))?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        schema: &mut Map<String, Value>,
        flat: &Flat<'a>,
        depth: usize,
    ) -> Result<(), Stop> {
        let mut properties = Map::new();
        for (name, schemas) in &flat.properties {
            self.spend(2)?;
            let property = Flat::of(self.root, schemas)?;
            // R-C-197, R-C-198
            if property.is_true("readOnly") || !input::is_name(name) {
                continue;
            }
            self.spend(name.len() + 6)?;
            let property = self.flat(&property, None, depth + 1)?;
            properties.insert((*name).to_owned(), property.into());
        }
        let mut required = flat.required.clone();
        required.retain(|name| properties.contains_key(*name));
        required.sort_unstable();
        required.dedup();
        if !required.is_empty() {
            self.put(schema, "required", json!(required))?;
        }
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), properties.into());
        }
        let has_patterns = flat.get("patternProperties").is_some();
        match flat.open() {
            Some(Value::Object(other)) if !other.is_empty() => {
                let other = Flat::of(self.root, &[flat.open().unwrap_or(&Value::Null)])?;
                let other = self.flat(&other, None, depth + 1)?;
                if !other.is_empty() {
                    schema.insert("additionalProperties".to_owned(), other.into());
                }
            }
            // Branches and patterns may allow what the object itself does not name.
            None if flat.closed && flat.choices.is_empty() && !has_patterns => {
                self.put(schema, "additionalProperties", false.into())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn list(
        &mut self,
        schema: &mut Map<String, Value>,
        flat: &Flat<'a>,
        types: &[&'static str],
        depth: usize,
    ) -> Result<(), Stop> {
        if !types.contains(&"array") {
            return Ok(());
        }
        let items = Flat::of(self.root, &flat.items)?;
        let items = self.flat(&items, None, depth + 1)?;
        self.spend(12)?;
        // Some clients take no list without `items`.
        schema.insert("items".to_owned(), items.into());
        Ok(())
    }

    /// `oneOf` as `anyOf` too: two branches may look the same once they are cut.
    fn choices(
        &mut self,
        schema: &mut Map<String, Value>,
        flat: &Flat<'a>,
        types: &[&'static str],
        depth: usize,
    ) -> Result<(), Stop> {
        let mut lists = Vec::new();
        for branches in &flat.choices {
            let mut written: Vec<Value> = Vec::new();
            for branch in branches {
                let branch = Flat::of(self.root, &[branch])?;
                let mut value = self.flat(&branch, None, depth + 1)?;
                if let Some(title) = branch.text("title").filter(|title| title.len() <= 80) {
                    self.put(&mut value, "title", title.into())?;
                }
                let value = Value::Object(value);
                if !written.contains(&value) {
                    written.push(value);
                }
            }
            if flat.is_nullable() && types.is_empty() {
                written.push(json!({"type": "null"}));
            }
            lists.push(written);
        }
        match lists.len() {
            0 => {}
            1 => {
                let list = lists.pop().unwrap_or_default();
                schema.insert("anyOf".to_owned(), list.into());
            }
            _ => {
                let all: Vec<Value> = lists
                    .into_iter()
                    .map(|list| json!({"anyOf": list}))
                    .collect();
                schema.insert("allOf".to_owned(), all.into());
            }
        }
        Ok(())
    }
}

/// Whether a pattern is one that readers of JSON Schema agree on.
fn is_pattern(pattern: &str) -> bool {
    pattern.len() <= 500 && regex_syntax::parse(pattern).is_ok()
}

fn is_short(value: &Value, most: usize) -> bool {
    size(value) <= most
}

/// About how long its JSON is.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(name, value)| name.len() + size(value) + 4)
                .sum::<usize>()
                + 2
        }
    }
}
