//! Why an Agent's entry that names a ToolSource serves nothing, as far as the source has told.

use chandlery_crds::NotedTool;
use chandlery_crds::conditions::reason;
use chandlery_crds::names::{agent_id, glob_matches};
use chandlery_crds::report::Unresolved;

use super::board::{Board, State};
use super::pins;
use crate::directory::{Agent, Snapshot, ToolSource};

/// The agent's entries that serve nothing, those of sources with what is known of the source (R-C-023).
pub fn unresolved(
    of_catalog: &[Unresolved],
    agent: &Agent,
    snapshot: &Snapshot,
    board: &Board,
) -> Vec<Unresolved> {
    let explained = of_catalog.iter().map(|unresolved| {
        let mut unresolved = unresolved.clone();
        if unresolved.reason == reason::SOURCE_NOT_SERVED
            && let Some((name, glob)) = unresolved.entry.split_once('/')
        {
            let source = snapshot.sources.get(&agent_id(agent.namespace(), name));
            (unresolved.reason, unresolved.message) = match source {
                Some(source) => why(name, glob, source, board.state(&source.uid)),
                None => missing(name),
            };
        }
        unresolved
    });
    explained.collect()
}

/// What is wrong with an entry of a source that is not there: reason and message.
pub fn missing(source: &str) -> (String, String) {
    let message =
        format!("there is no ToolSource {source} in this namespace: make it, or correct the entry");
    (reason::TOOL_SOURCE_NOT_FOUND.to_owned(), message)
}

/// What is wrong with an entry of a source that has nothing of that name: reason and message.
pub fn nothing(source: &str, glob: &str) -> (String, String) {
    let message = format!("the ToolSource {source} offers nothing that {glob} names");
    (reason::NO_SUCH_TOOL.to_owned(), message)
}

/// What is wrong with an entry that means a tool which is left out: reason and message.
pub fn left_out(source: &str, noted: &NotedTool) -> (String, String) {
    let NotedTool {
        name,
        reason,
        message,
    } = noted;
    let message = format!("{name} of the ToolSource {source} is left out: {message}");
    (reason.clone(), message)
}

fn why(name: &str, glob: &str, source: &ToolSource, state: Option<State>) -> (String, String) {
    let Some(state) = state else {
        let message = format!(
            "no live ToolGrant names the ToolSource {name}, so it is not asked: make one, or wait for its time"
        );
        return (reason::NOT_GRANTED.to_owned(), message);
    };
    if state.report.revision.is_none() {
        return match &state.report.failure {
            Some(failure) => {
                let message = format!(
                    "the ToolSource {name} could not be asked: {}",
                    failure.message
                );
                (failure.reason.clone(), message)
            }
            None => {
                let message =
                    format!("the ToolSource {name} has not been asked yet what it offers");
                (reason::NOT_DISCOVERED_YET.to_owned(), message)
            }
        };
    }
    let withheld = pins::withheld(&state.changes, source.spec.pinning().policy);
    if let Some(operation) = withheld.iter().find(|name| glob_matches(glob, name)) {
        let message = format!(
            "{operation} of the ToolSource {name} is not as it was approved and is withheld: `chandlery sources diff {name}` shows what changed"
        );
        return (reason::TOOLS_WITHHELD.to_owned(), message);
    }
    let mut noted = state.report.tools.noted.iter();
    noted
        .find(|noted| glob_matches(glob, &noted.name))
        .map_or_else(|| nothing(name, glob), |noted| left_out(name, noted))
}
