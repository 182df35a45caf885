//! Whether a store's audit is what was written: every chain from its first row to its head.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::chain::{Key, START, hex};
use super::store::{Chain, chains, rows_after};
use crate::store::{Connection, StoreError, StoreUrl, open_to_read};

/// Rows that are read at once.
const PAGE: i64 = 2_000;

/// A head that was noted elsewhere: `<seq>:<hex of the hash>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    pub seq: i64,
    pub mac: String,
}

/// What there is to say of one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `<namespace>.<name>` of the Workspace.
    pub workspace: String,
    /// Rows that are sound, from the first on.
    pub sound: i64,
    /// The last sound row's hash, in hex.
    pub mac: String,
    /// What is wrong with the row after them.
    pub flaw: Option<String>,
}

/// Verifies every chain. `noted` are heads by Workspace, copied from the log earlier: a chain that was cut off or
/// replaced as a whole shows only by them.
pub async fn verify(
    url: &StoreUrl,
    key: &SecretString,
    noted: &BTreeMap<String, Noted>,
) -> Result<Vec<Verdict>, StoreError> {
    let key = Key::new(key);
    let mut connection = open_to_read(url).await?;
    let chains = chains(&mut connection).await?;
    let mut verdicts = Vec::new();
    for chain in &chains {
        let noted = noted.get(&chain.name);
        verdicts.push(walk(&mut connection, &key, chain, noted).await?);
    }
    for (workspace, noted) in noted {
        if !chains.iter().any(|chain| chain.name == *workspace) {
            verdicts.push(Verdict {
                workspace: workspace.clone(),
                sound: 0,
                mac: hex(&START),
                flaw: Some(format!(
                    "there is no chain, though one with {} rows was noted",
                    noted.seq
                )),
            });
        }
    }
    Ok(verdicts)
}

async fn walk(
    connection: &mut Connection,
    key: &Key,
    chain: &Chain,
    noted: Option<&Noted>,
) -> Result<Verdict, StoreError> {
    let (mut seq, mut mac) = (0, START);
    let mut is_noted_found = noted.is_none_or(|noted| noted.seq == 0);
    let flaw = 'chain: loop {
        // The gateway may write on: what came after the moment of the heads is not looked at.
        let wanted = PAGE.min(chain.last - seq);
        if wanted <= 0 {
            break None;
        }
        let rows = rows_after(connection, chain.workspace, seq, wanted).await?;
        if rows.is_empty() {
            break Some(format!("row {} is missing", seq + 1));
        }
        for row in rows {
            if row.seq != seq + 1 {
                break 'chain Some(format!(
                    "row {} is missing: row {} follows",
                    seq + 1,
                    row.seq
                ));
            }
            let expected = key.mac(&mac, &row.content(chain.workspace));
            if row.mac != expected {
                break 'chain Some(format!(
                    "row {} is not what was written, or does not follow the row before it",
                    row.seq
                ));
            }
            (seq, mac) = (row.seq, expected);
            if let Some(noted) = noted.filter(|noted| noted.seq == seq) {
                if noted.mac != hex(&mac) {
                    break 'chain Some(format!("row {seq} is not the one that was noted"));
                }
                is_noted_found = true;
            }
        }
    };
    let flaw = flaw.or_else(|| match &chain.head {
        None => Some("the head is missing".to_owned()),
        Some((last, _)) if *last > seq => {
            Some(format!("rows {} to {last} are missing at the end", seq + 1))
        }
        Some((last, head)) if *last < seq || *head != mac => {
            Some(format!("the head names row {last} and not the last row"))
        }
        Some(_) => noted.filter(|_| !is_noted_found).map(|noted| {
            format!(
                "rows {} to {} are missing at the end: a head at {} was noted",
                seq + 1,
                noted.seq,
                noted.seq
            )
        }),
    });
    Ok(Verdict {
        workspace: chain.name.clone(),
        sound: seq,
        mac: hex(&mac),
        flaw,
    })
}
