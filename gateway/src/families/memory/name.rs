use std::fmt;

use crate::tool::ToolError;

/// The index's name as it is shown; stored in lower case like every other.
const INDEX: &str = "MEMORY.md";
/// Characters of a name, `.md` included.
const LIMIT: usize = 32;

/// A memory's name, in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    /// Reads a name in any case, alone or as `memory://<name>`; none is the index.
    pub(super) fn parse(action: &str, name: Option<String>) -> Result<Self, ToolError> {
        let given = name.unwrap_or_else(|| INDEX.to_owned());
        let name = given.trim().to_lowercase();
        let name = name.strip_prefix("memory://").unwrap_or(&name);
        let length = name.chars().count();
        if length > LIMIT {
            return Err(ToolError::arguments(format!(
                "{action}: the memory's name is {length} characters long; the limit is {LIMIT}"
            )));
        }
        let is_word = |word: &str| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let words = name.strip_suffix(".md");
        if !words.is_some_and(|words| words.split('-').all(is_word)) {
            return Err(ToolError::arguments(format!(
                "{action}: the memory's name \"{name}\" can't be used; write lowercase words of letters and digits joined by single hyphens and ending in .md, such as release-notes.md"
            )));
        }
        Ok(Self(name.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.eq_ignore_ascii_case(INDEX) {
            INDEX
        } else {
            &self.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-A-161, R-A-166, R-A-167, R-A-173, Q7
    #[test]
    fn names_are_lowercase_words_of_at_most_32_characters() {
        for (given, expected) in [
            (None, Some("memory.md")),
            (Some("MEMORY.md"), Some("memory.md")),
            (Some(" Memory.MD "), Some("memory.md")),
            (Some("memory://deploys.md"), Some("deploys.md")),
            (Some("release-notes-2.md"), Some("release-notes-2.md")),
            (
                Some("a23456789-123456789-123456789.md"),
                Some("a23456789-123456789-123456789.md"),
            ),
            (Some("a23456789-123456789-1234567890.md"), None),
            (Some(""), None),
            (Some(".md"), None),
            (Some("deploys"), None),
            (Some("a--b.md"), None),
            (Some("-a.md"), None),
            (Some("a-.md"), None),
            (Some("a_b.md"), None),
            (Some("a b.md"), None),
            (Some("ä.md"), None),
            (Some("../a.md"), None),
            (Some("a.md.md"), None),
        ] {
            let parsed = Name::parse("memory.load", given.map(str::to_owned)).ok();
            assert_eq!(parsed.as_ref().map(Name::as_str), expected, "{given:?}");
        }
    }
}
