//! The chain of a Workspace's rows: each row's keyed hash covers the row and the hash of the one before it, so that a
//! row can be neither changed nor taken out, put in or moved without the account's key.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

pub(super) const MAC: usize = 32;

/// Tell these uses of the key from its others.
const CHAIN: &[u8] = b"chandlery audit chain 1\0";
const ROW: &[u8] = b"chandlery audit row 1\0";

/// The account's key.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

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
