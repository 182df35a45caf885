//! The largest documents that are read, with as many operations as are served.

use std::fmt::Write;
use std::time::{Duration, Instant};

use chandlery_gateway::families::openapi::{MAX_BYTES, MAX_OPERATIONS, Settings, read};

use super::large::{cpu, in_yaml, of_schemas, of_texts};

#[track_caller]
fn check(what: &str, text: &str) {
    let (start, before) = (Instant::now(), cpu("self"));
    let document = read(text.as_bytes(), &Settings::default()).expect("a document that loads");
    let (took, used) = (start.elapsed(), cpu("self") - before);
    println!(
        "{what}: {} bytes, {} operations in {took:?}, {used:?} of CPU with all that ran beside it",
        text.len(),
        document.operations.len(),
    );
    assert_eq!(
        (document.operations.len(), document.cut),
        (MAX_OPERATIONS, 0)
    );
    // What is built for tests is not what is shipped.
    if !cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(3), "{what}: {took:?}");
    }
}

/// Issue 5: 20 MB and 2,000 operations in under 3 s.
#[test]
fn a_document_of_twenty_megabytes_loads_in_three_seconds() {
    let text = of_texts(MAX_BYTES);
    assert!(text.len() > MAX_BYTES * 9 / 10, "{} bytes", text.len());
    check("JSON of long texts", &text);
    // A reader of YAML that was built for tests takes a minute for what takes a second.
    let size = if cfg!(debug_assertions) {
        MAX_BYTES / 8
    } else {
        MAX_BYTES
    };
    check("JSON of many schemas", &of_schemas(size));
    let text = in_yaml(size);
    assert!(
        (size * 4 / 5..size).contains(&text.len()),
        "{} bytes",
        text.len()
    );
    check("YAML", &text);
}

/// The answer that all operations share is one anchor with many aliases.
#[test]
fn aliases_are_followed_as_far_as_the_document_may_grow() {
    let with = |shared: &str, operations: usize| {
        let mut text = format!("openapi: 3.1.0\nx-shared: &shared {shared}\npaths:\n");
        for at in 0..operations {
            writeln!(
                text,
                "  /a{at}: {{get: {{operationId: a{at}, responses: {{'200': *shared}}}}}}"
            )
            .expect("write to a string");
        }
        read(text.as_bytes(), &Settings::default()).map(|document| document.operations.len())
    };
    assert_eq!(with("{description: OK}", 1_500), Ok(1_500));
    let long = format!("{{description: '{}'}}", "x".repeat(1 << 20));
    let many = format!("[{}]", vec!["1"; 100_000].join(", "));
    for shared in [long, many] {
        with(&shared, 2_000).expect_err("a document that grows too much");
    }
}
