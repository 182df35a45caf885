//! The documentation in this program, cut into sections, and the search in it (R-C-072).

mod store;

use serde::Serialize;

pub(super) use self::store::Index;

/// A Markdown file of the repository.
struct Page {
    /// From the repository's root, such as `docs/tools.md`.
    path: &'static str,
    text: &'static str,
}

/// `README.md` and everything below `docs/`, listed by the build script.
const PAGES: &[Page] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// What stands under one heading.
#[derive(Debug, PartialEq)]
struct Section {
    /// Of the page.
    title: String,
    /// The heading, after those around it; the page's title for what comes before any other.
    section: String,
    path: &'static str,
    text: String,
}

/// A section that answers a query.
#[derive(Debug, Serialize)]
pub(super) struct Hit {
    pub(super) title: String,
    pub(super) section: String,
    pub(super) path: String,
    pub(super) excerpt: String,
}

/// Words of a query that are looked at.
const WORDS: usize = 32;

/// Words that stand in every question and say nothing about it.
const FILLERS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "do", "does", "for", "from",
    "get", "has", "have", "how", "i", "if", "in", "is", "it", "me", "mean", "my", "not", "of",
    "on", "or", "s", "should", "so", "t", "that", "the", "there", "this", "to", "was", "we",
    "what", "when", "where", "which", "who", "why", "will", "with", "you",
];

/// The words of a query, as far as the index knows words; fillers only where there is nothing else.
fn words(query: &str) -> Vec<&str> {
    let words = query.split(|c: char| !c.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let is_filler = |word: &&&str| FILLERS.contains(&word.to_lowercase().as_str());
    let telling: Vec<&str> = words
        .iter()
        .filter(|word| !is_filler(word))
        .copied()
        .collect();
    let mut words = if telling.is_empty() { words } else { telling };
    words.truncate(WORDS);
    words
}

fn sections() -> Vec<Section> {
    PAGES
        .iter()
        .flat_map(|page| split(page.path, page.text))
        .collect()
}

/// The sections of a page, without those that hold nothing but their heading.
fn split(path: &'static str, text: &str) -> Vec<Section> {
    let mut title = path.to_owned();
    // The headings around the current line, from the second level down.
    let mut around: Vec<(usize, String)> = Vec::new();
    let mut found = Vec::new();
    let mut body = String::new();
    let mut fence: Option<&str> = None;
    let mut close = |title: &str, around: &[(usize, String)], body: &mut String| {
        let text = std::mem::take(body);
        let headings: Vec<&str> = around.iter().map(|(_, heading)| heading.as_str()).collect();
        if !text.trim().is_empty() {
            found.push(Section {
                title: title.to_owned(),
                section: match headings.as_slice() {
                    [] => title.to_owned(),
                    headings => headings.join(" › "),
                },
                path,
                text: text.trim().to_owned(),
            });
        }
    };
    for line in text.lines() {
        let mark = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|fence| mark.starts_with(fence));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        let heading = fence.is_none().then(|| heading(line)).flatten();
        let Some((level, heading)) = heading else {
            body.push_str(line);
            body.push('\n');
            continue;
        };
        close(&title, &around, &mut body);
        if level == 1 {
            title = heading.to_owned();
            around.clear();
        } else {
            around.retain(|(outer, _)| *outer < level);
            around.push((level, heading.to_owned()));
        }
    }
    close(&title, &around, &mut body);
    found
}

/// Level and text of a heading line.
fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    let text = text.strip_prefix(' ')?;
    (1..=6)
        .contains(&level)
        .then(|| (level, text.trim().trim_matches('`')))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    // R-C-072: a page that is added is searched.
    #[test]
    fn every_page_of_the_repository_is_embedded() {
        fn find(folder: &Path, root: &Path, pages: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    find(&path, root, pages);
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    let path = path.strip_prefix(root).unwrap();
                    pages.push(path.to_str().unwrap().to_owned());
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut expected = vec!["README.md".to_owned()];
        find(&root.join("docs"), root, &mut expected);
        expected.sort();
        let mut embedded: Vec<&str> = PAGES.iter().map(|page| page.path).collect();
        embedded.sort_unstable();
        assert_eq!(embedded, expected);
        for page in PAGES {
            assert_eq!(page.text, fs::read_to_string(root.join(page.path)).unwrap());
        }
    }

    #[test]
    fn a_question_is_the_words_that_tell_something() {
        assert_eq!(words("How do I rotate a key?"), ["rotate", "key"]);
        assert_eq!(words("What is it?"), ["What", "is", "it"]);
        assert_eq!(words("agnt_db_select"), ["agnt", "db", "select"]);
        assert!(words(" \"-* ").is_empty());
        assert_eq!(words(&"word ".repeat(100)).len(), WORDS);
    }

    #[test]
    fn a_page_is_cut_at_its_headings() {
        let text = "intro\n# Tools\n\nAll of them.\n## One\n### `deep`\nsix\n```sh\n# no heading\n```\n## Two\n#hash\n";
        let found: Vec<(String, String, String)> = split("docs/tools.md", text)
            .into_iter()
            .map(|found| (found.title, found.section, found.text))
            .collect();
        let expected = [
            ("docs/tools.md", "docs/tools.md", "intro"),
            ("Tools", "Tools", "All of them."),
            ("Tools", "One › deep", "six\n```sh\n# no heading\n```"),
            ("Tools", "Two", "#hash"),
        ];
        let expected = expected
            .map(|(title, section, text)| (title.to_owned(), section.to_owned(), text.to_owned()));
        assert_eq!(found, expected);
    }
}
