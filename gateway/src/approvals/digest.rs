//! What makes two calls the same: the digest of their arguments, however they were written.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256, in hex, of JSON arguments with their fields in order and without spaces. Text that is no JSON is taken as
/// it is.
pub fn digest(arguments: &str) -> String {
    let canonical = match serde_json::from_str::<Value>(arguments) {
        Ok(mut value) => {
            // Some crate of the program may have switched on that maps keep the order in which they were read.
            value.sort_all_objects();
            value.to_string()
        }
        Err(_) => arguments.to_owned(),
    };
    hex::encode(Sha256::digest(canonical.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn the_same_arguments_have_the_same_digest() {
        let same = digest(r#"{"a": 1, "b": {"c": [1, 2], "d": "é"}}"#);
        assert_eq!(digest(r#"{"b":{"d":"\u00e9","c":[1,2]},"a":1}"#), same);
        for other in [
            r#"{"a": 1, "b": {"c": [2, 1], "d": "é"}}"#,
            r#"{"a": "1", "b": {"c": [1, 2], "d": "é"}}"#,
            r#"{"a": 1, "b": {"c": [1, 2]}}"#,
        ] {
            assert_ne!(digest(other), same, "{other}");
        }
    }
}
