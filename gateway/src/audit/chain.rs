//! The chain of a Workspace's rows: each row's keyed hash covers the row and the hash of the one before it, so that a
//! row can be neither changed nor taken out, put in or moved without the account's key.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::Row;
use crate::directory::Agent;

pub(super) const MAC: usize = 32;

/// Tell these uses of the key from its others.
const CHAIN: &[u8] = b"chandlery audit chain 1\0";
const ROW: &[u8] = b"chandlery audit row 1\0";

/// The account's key.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

/// The last row's number and hash.
pub(super) type Head = (i64, [u8; MAC]);

/// Who made a call.
#[derive(PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Caller {
    pub(super) agent: String,
    pub(super) agent_uid: String,
    pub(super) key_id: String,
}

/// A row at its place in a Workspace's chain.
#[derive(Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) workspace: i64,
    pub(super) seq: i64,
    pub(super) caller: Arc<Caller>,
    pub(super) row: Row,
    #[serde(with = "hex")]
    pub(super) mac: [u8; MAC],
}

impl Caller {
    pub(super) fn new(agent: &Agent, key_id: &str) -> Self {
        Self {
            agent: agent.id.clone(),
            agent_uid: agent.uid.clone(),
            key_id: key_id.to_owned(),
        }
    }

    pub(super) fn is(&self, agent: &Agent, key_id: &str) -> bool {
        self.agent == agent.id && self.agent_uid == agent.uid && self.key_id == key_id
    }
}

impl Link {
    fn content(&self) -> Content<'_> {
        content(self.workspace, self.seq, &self.caller, &self.row)
    }
}

/// What the hash of a row covers.
fn content<'a>(workspace: i64, seq: i64, caller: &'a Caller, row: &'a Row) -> Content<'a> {
    let Caller {
        agent,
        agent_uid,
        key_id,
    } = caller;
    let Row {
        id,
        at,
        tool,
        decision,
        outcome,
        duration_us,
        request_bytes,
        response_bytes,
        arguments_digest,
        arguments,
    } = row;
    Content {
        workspace,
        seq,
        id: *id,
        at: *at,
        agent,
        agent_uid,
        key_id,
        tool,
        decision,
        outcome,
        duration_us: *duration_us,
        request_bytes: *request_bytes,
        response_bytes: *response_bytes,
        arguments_digest,
        arguments: arguments.as_deref(),
    }
}

/// Everything that a row says.
pub(super) struct Content<'a> {
    pub(super) workspace: i64,
    pub(super) seq: i64,
    pub(super) id: i64,
    pub(super) at: i64,
    pub(super) agent: &'a str,
    pub(super) agent_uid: &'a str,
    pub(super) key_id: &'a str,
    pub(super) tool: &'a str,
    pub(super) decision: &'a str,
    pub(super) outcome: &'a str,
    pub(super) duration_us: i64,
    pub(super) request_bytes: i64,
    pub(super) response_bytes: i64,
    pub(super) arguments_digest: &'a [u8],
    pub(super) arguments: Option<&'a str>,
}

impl Key {
    pub(super) fn new(key: &SecretString) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        Self(Hmac::new_from_slice(key.expose_secret().as_bytes()).expect("a key"))
    }

    /// Digest of a call's arguments.
    pub(super) fn digest(&self, arguments: &[u8]) -> [u8; MAC] {
        self.0
            .clone()
            .chain_update(arguments)
            .finalize()
            .into_bytes()
            .into()
    }

    /// What the first row of a Workspace follows: a chain cannot be taken for another Workspace's.
    pub(super) fn start(&self, workspace: &str) -> [u8; MAC] {
        let mac = self.0.clone().chain_update(CHAIN);
        mac.chain_update(workspace).finalize().into_bytes().into()
    }

    /// Puts a row behind `head`, and moves that.
    pub(super) fn link(
        &self,
        workspace: i64,
        head: &mut Head,
        caller: Arc<Caller>,
        row: Row,
    ) -> Link {
        let (before, mac) = *head;
        let seq = before + 1;
        let mac = self.mac(&mac, &content(workspace, seq, &caller, &row));
        *head = (seq, mac);
        Link {
            workspace,
            seq,
            caller,
            row,
            mac,
        }
    }

    /// Whether `link` is the row behind `head`.
    pub(super) fn follows(&self, link: &Link, (seq, mac): &Head) -> bool {
        link.seq == seq + 1 && link.mac == self.mac(mac, &link.content())
    }

    /// The hash of the row that follows the one with `before`.
    pub(super) fn mac(&self, before: &[u8], content: &Content<'_>) -> [u8; MAC] {
        let Content {
            workspace,
            seq,
            id,
            at,
            agent,
            agent_uid,
            key_id,
            tool,
            decision,
            outcome,
            duration_us,
            request_bytes,
            response_bytes,
            arguments_digest,
            arguments,
        } = content;
        let mut mac = self.0.clone();
        mac.update(ROW);
        mac.update(before);
        for number in [
            workspace,
            seq,
            id,
            at,
            duration_us,
            request_bytes,
            response_bytes,
        ] {
            mac.update(&number.to_be_bytes());
        }
        // With their lengths: what ends one field cannot begin the next.
        for text in [agent, agent_uid, key_id, tool, decision, outcome] {
            field(&mut mac, text.as_bytes());
        }
        field(&mut mac, arguments_digest);
        match arguments {
            Some(arguments) => field(&mut mac, arguments.as_bytes()),
            None => mac.update(&u64::MAX.to_be_bytes()),
        }
        mac.finalize().into_bytes().into()
    }
}

fn field(mac: &mut Hmac<Sha256>, bytes: &[u8]) {
    mac.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
    mac.update(bytes);
}
