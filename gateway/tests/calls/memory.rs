//! The memory family (R-A-160…174).

use serde_json::json;

use crate::harness::{Caller, Gateway};

// R-A-160, R-A-163, R-A-165: notes are the workspace's, and saving replaces all.
#[tokio::test]
async fn agents_of_a_workspace_share_notes_and_no_other_workspace_sees_them() {
    for gateway in Gateway::each().await {
        let (one, two, other) = (
            Caller::new("one", "lab"),
            Caller::new("two", "lab"),
            Caller::new("other", "elsewhere"),
        );
        let load = json!({"action": "load", "payload": {"name": "deploys.md"}});
        for content in ["first", "sécond"] {
            let save =
                json!({"action": "save", "payload": {"name": "deploys.md", "content": content}});
            let saved = format!("Saved \"deploys.md\" ({} bytes).", content.len());
            assert_eq!(gateway.text(&one, "memory", save).await, saved);
            assert_eq!(gateway.text(&two, "memory", load.clone()).await, content);
        }
        let nothing = "No memory saved under \"deploys.md\" yet. Use memory save to write one.";
        assert_eq!(gateway.text(&other, "memory", load).await, nothing);
    }
}

// R-A-012, R-A-161, R-A-164, R-A-170, R-A-171, R-A-172, Q7
#[tokio::test]
async fn without_a_name_the_index_is_meant() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let memory = async |arguments| gateway.text(&one, "memory", arguments).await;
        let load = json!({"action": "load"});
        assert_eq!(
            memory(load.clone()).await,
            "No memory saved under \"MEMORY.md\" yet. Use memory save to write one."
        );
        let index = "- [deploys](memory://deploys.md)";
        memory(json!({"action": "save", "payload": {"content": index}})).await;
        memory(json!({"action": "save", "payload": {"name": "deploys.md", "content": "d"}})).await;
        assert_eq!(memory(load.clone()).await, index);
        let same = json!({"action": "load", "payload": {"name": "memory.md"}});
        assert_eq!(memory(same).await, index);
        let delete = json!({"action": "delete"});
        assert_eq!(memory(delete.clone()).await, "Deleted \"MEMORY.md\".");
        assert_eq!(
            memory(delete).await,
            "No memory was stored under \"MEMORY.md\"; nothing to delete."
        );
        let linked = json!({"action": "load", "payload": {"name": "memory://deploys.md"}});
        assert_eq!(memory(linked).await, "d");
    }
}

// R-A-155, R-A-166, R-A-167, R-A-168, R-A-169
#[tokio::test]
async fn what_is_too_large_or_misnamed_is_refused_and_changes_nothing() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let save = |name: &str, content: String| json!({"action": "save", "payload": {"name": name, "content": content}});
        gateway
            .text(&one, "memory", save("a.md", "x".repeat(16_384)))
            .await;
        let refused = gateway
            .refusal(&one, "memory", save("a.md", "y".repeat(16_385)))
            .await;
        for part in [
            "memory.save",
            "16385 bytes",
            "16384 bytes (16 KiB)",
            "MEMORY.md",
            "memory://",
        ] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        let load = json!({"action": "load", "payload": {"name": "a.md"}});
        assert_eq!(gateway.text(&one, "memory", load).await, "x".repeat(16_384));
        for (name, part) in [
            ("Not a name.md", "lowercase words"),
            ("a23456789-123456789-1234567890.md", "33 characters"),
        ] {
            let refused = gateway
                .refusal(&one, "memory", save(name, "c".into()))
                .await;
            assert!(
                refused.contains("memory.save") && refused.contains(part),
                "{refused}"
            );
        }
        // Bytes that a database could not keep are refused by name, not failed.
        let refused = gateway
            .refusal(&one, "memory", save("a.md", "a\0b".into()))
            .await;
        assert!(refused.contains("content contains a NUL"), "{refused}");
    }
}

// R-A-174, R-A-289, R-A-290, R-A-291, R-A-302
#[tokio::test]
async fn the_older_names_answer_the_same() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let content = json!({"name": "a.md", "content": "c"});
        assert_eq!(
            gateway.text(&one, "saveMemory", content).await,
            "Saved \"a.md\" (1 bytes)."
        );
        let name = json!({"name": "a.md"});
        assert_eq!(gateway.text(&one, "loadMemory", name.clone()).await, "c");
        assert_eq!(
            gateway.text(&one, "deleteMemory", name).await,
            "Deleted \"a.md\"."
        );
        let refused = gateway
            .refusal(&one, "saveMemory", json!({"name": "a.md"}))
            .await;
        assert!(
            refused.contains("memory.save: content is required"),
            "{refused}"
        );
    }
}
