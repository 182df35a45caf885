//! References within the document. Those that leave it are refused: nothing is ever fetched.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Broken, text};

/// How many references may lead from one to the next.
const HOPS: usize = 32;

/// What a `$ref` names.
pub(super) fn target<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, Broken> {
    let shown = text::short(reference);
    let Some(pointer) = reference.strip_prefix('#') else {
        return Err(Broken::new(format!(
            "`$ref: {shown}` leaves the document; only references within it are followed"
        )));
    };
    let pointer = percent_decode_str(pointer).decode_utf8_lossy();
    root.pointer(&pointer)
        .ok_or_else(|| Broken::new(format!("`$ref: {shown}` leads nowhere")))
}

/// `value`, or what it refers to in the end. For everything but schemas, whose references have siblings.
pub(super) fn resolve<'a>(root: &'a Value, value: &'a Value) -> Result<&'a Value, Broken> {
    let mut value = value;
    for _ in 0..HOPS {
        match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => value = target(root, reference)?,
            None => return Ok(value),
        }
    }
    Err(Broken::new("its `$ref`s refer to each other in a circle"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pointers_are_unescaped_and_stay_within_the_document() {
        let root = json!({"paths": {"/a/{b}": {"~x": 1}}, "loop": {"$ref": "#/loop"}});
        for reference in ["#/paths/~1a~1{b}/~0x", "#/paths/~1a~1%7Bb%7D/~0x"] {
            assert_eq!(target(&root, reference), Ok(&json!(1)), "{reference}");
        }
        for reference in [
            "other.yaml#/a",
            "https://elsewhere.example/a.json",
            "file:///etc/passwd",
            "Pet",
        ] {
            let error = target(&root, reference).unwrap_err();
            assert!(error.0.contains("leaves the document"), "{error}");
        }
        assert!(target(&root, "#/nowhere").is_err());
        assert!(resolve(&root, &root["loop"]).is_err());
    }
}
