//! The fields of a payload: one declaration is the type that is decoded, what is checked, and what help prints.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::store::Id;
use crate::tool::ToolError;

/// What an action takes. Made by [`payload!`].
pub(crate) trait Payload: DeserializeOwned + 'static {
    const FIELDS: &'static [Field];
    const RENAMED: &'static [(&'static str, &'static str)];
}

/// One field of a payload.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) description: &'static str,
}

/// The JSON type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    Id,
    /// From 0 up to 2^32 - 1.
    Integer,
    Boolean,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String | Self::OneOf(_) | Self::Id => "string",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
        }
    }

    fn matches(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::OneOf(names) => value.as_str().is_some_and(|name| names.contains(&name)),
            Self::Id => value.as_str().is_some_and(|id| id.parse::<Id>().is_ok()),
            Self::Integer => value.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
            Self::Boolean => value.is_boolean(),
        }
    }
}

/// A Rust type that a field may have.
pub(crate) trait FieldType {
    const KIND: Kind;
    const REQUIRED: bool = true;
}

impl FieldType for Id {
    const KIND: Kind = Kind::Id;
}

impl FieldType for String {
    const KIND: Kind = Kind::String;
}

impl FieldType for u32 {
    const KIND: Kind = Kind::Integer;
}

impl FieldType for bool {
    const KIND: Kind = Kind::Boolean;
}

impl<T: FieldType> FieldType for Option<T> {
    const KIND: Kind = T::KIND;
    const REQUIRED: bool = false;
}

/// Declares a payload: `Name { field: Type = "jsonName", "description"; … }`, an `Option` for what may be left out.
///
/// `"old" => "new"` at the end takes a field under an older name too.
macro_rules! payload {
    ($name:ident {
        $($field:ident: $type:ty = $json:literal, $description:literal;)*
        $($old:literal => $new:literal;)*
    }) => {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $(#[serde(rename = $json)] $field: $type,)*
        }

        impl $crate::families::actions::Payload for $name {
            const FIELDS: &'static [$crate::families::actions::Field] = &[
                $($crate::families::actions::Field {
                    name: $json,
                    kind: <$type as $crate::families::actions::payload::FieldType>::KIND,
                    required: <$type as $crate::families::actions::payload::FieldType>::REQUIRED,
                    description: $description,
                },)*
            ];
            const RENAMED: &'static [(&'static str, &'static str)] = &[$(($old, $new),)*];
        }
    };
}
pub(crate) use payload;

/// Declares a type of fields that are one of a few words, which the store keeps as they are.
macro_rules! one_of {
    ($(#[$meta:meta])* $visibility:vis $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $visibility enum $name {
            $($(#[$about])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            $visibility fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            $visibility fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl $crate::families::actions::payload::FieldType for $name {
            const KIND: $crate::families::actions::payload::Kind =
                $crate::families::actions::payload::Kind::OneOf(&[$($word),*]);
        }
    };
}
pub(crate) use one_of;

/// Decodes a payload strictly: a field that is unknown, missing or of another type is named and refused.
pub(crate) fn decode<P: Payload>(
    action: &str,
    payload: Map<String, Value>,
) -> Result<P, ToolError> {
    let payload = renamed(action, P::RENAMED, payload)?;
    check(action, P::FIELDS, &payload)?;
    serde_json::from_value(Value::Object(payload))
        .map_err(|error| ToolError::arguments(format!("{action}: {error}")))
}

/// Takes fields under their older names for those of today.
fn renamed(
    full_name: &str,
    renamed: &[(&str, &str)],
    mut payload: Map<String, Value>,
) -> Result<Map<String, Value>, ToolError> {
    for (old, new) in renamed {
        let Some(value) = payload.remove(*old) else {
            continue;
        };
        let before = payload.insert((*new).to_owned(), value.clone());
        if before.is_some_and(|before| before != value) {
            return Err(ToolError::arguments(format!(
                "{full_name}: {old} is the older name of {new}, and the two have different values; keep {new}"
            )));
        }
    }
    Ok(payload)
}

/// Refuses what an action does not take, lacks, or takes in another type.
fn check(action: &str, fields: &[Field], payload: &Map<String, Value>) -> Result<(), ToolError> {
    let refuse = |message: String| Err(ToolError::arguments(format!("{action}: {message}")));
    let unknown = payload
        .keys()
        .find(|name| fields.iter().all(|field| field.name != *name));
    if let Some(name) = unknown {
        let unknown: String = name.chars().take(64).collect();
        let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        return refuse(match names.as_slice() {
            [] => format!("unknown field \"{unknown}\"; this action takes no fields"),
            [name] => format!("unknown field \"{unknown}\"; the only field is {name}"),
            names => format!(
                "unknown field \"{unknown}\"; the fields are {}",
                names.join(", ")
            ),
        });
    }
    for field in fields {
        let Field {
            name,
            kind,
            required,
            description,
        } = field;
        match payload.get(*name) {
            None | Some(Value::Null) if *required => {
                return refuse(format!(
                    "{name} is required ({}): {description}",
                    kind.name()
                ));
            }
            None | Some(Value::Null) => {}
            Some(value) if !kind.matches(value) => {
                return refuse(format!(
                    "{name} must be {}, not {}",
                    expected(*kind),
                    found(value)
                ));
            }
            Some(Value::String(text)) if text.contains('\0') => {
                return refuse(format!(
                    "{name} contains a NUL character (\\u0000), which can't be kept; leave it out"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn expected(kind: Kind) -> String {
    match kind {
        Kind::String => "a string".to_owned(),
        Kind::OneOf(names) => format!("one of {}", names.join(", ")),
        Kind::Id => "an ID of 11 letters and digits, such as 0HtDqT3kVbW".to_owned(),
        Kind::Integer => "an integer from 0 up".to_owned(),
        Kind::Boolean => "a boolean".to_owned(),
    }
}

/// A short value as it came, or what it is.
pub(crate) fn found(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() <= 64 => format!("\"{text}\""),
        Value::Number(number) => number.to_string(),
        other => kind_of(other).to_owned(),
    }
}

/// What a JSON value is, with its article.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
