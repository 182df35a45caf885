//! Whether a store's audit is what was written: every chain from its first row to its head.

use secrecy::SecretString;

use super::chain::Key;
use super::journaled::{JOURNAL, Left};
use super::store::{Chain, chains, rows_after, strays};
use crate::store::{Connection, StoreError, StoreUrl, open_to_read, read_journal};

/// Rows that are read at once.
const PAGE: i64 = 2_000;

/// A head that was noted elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// `<namespace>.<name>`.
    pub workspace: String,
    pub seq: i64,
    /// In hex.
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

/// Verifies every chain. `noted` are heads that were copied from the log earlier: a chain that was cut off or
/// replaced as a whole shows only by them.
pub async fn verify(
    url: &StoreUrl,
    key: &SecretString,
    noted: &[Noted],
) -> Result<Vec<Verdict>, StoreError> {
    let key = Key::new(key);
    // Read first: what is moved meanwhile is then found in the database.
    let mut left = Left::new(read_journal(url, JOURNAL)?);
    let mut connection = open_to_read(url).await?;
    let chains = chains(&mut connection).await?;
    let mut verdicts = Vec::new();
    for chain in &chains {
        let own: Vec<&Noted> = noted
            .iter()
            .filter(|noted| noted.workspace == chain.name)
            .collect();
        verdicts.push(walk(&mut connection, &key, chain, &mut left, &own).await?);
    }
    let missing = |workspace: String, flaw: String| Verdict {
        workspace,
        sound: 0,
        mac: String::new(),
        flaw: Some(flaw),
    };
    for noted in noted {
        if !chains.iter().any(|chain| chain.name == noted.workspace) {
            let flaw = format!(
                "there is no chain, though one with {} rows was noted",
                noted.seq
            );
            verdicts.push(missing(noted.workspace.clone(), flaw));
        }
    }
    for number in strays(&mut connection).await? {
        let flaw = "there are rows, but the Workspace that they belong to is gone".to_owned();
        verdicts.push(missing(format!("#{number}"), flaw));
    }
    Ok(verdicts)
}

async fn walk(
    connection: &mut Connection,
    key: &Key,
    chain: &Chain,
    left: &mut Left,
    noted: &[&Noted],
) -> Result<Verdict, StoreError> {
    let is_other = |seq, mac: &[u8]| {
        let mut noted = noted.iter().filter(|noted| noted.seq == seq);
        noted.any(|noted| noted.mac != hex::encode(mac))
    };
    let not_the_noted = |seq| format!("row {seq} is not the one that was noted");
    let (mut seq, mut mac) = (0, key.start(&chain.name));
    let flaw = 'chain: loop {
        if chain.first < 1 {
            break Some(format!("row {} was put in", chain.first));
        }
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
            let expected = row.fields.and_then(|fields| {
                let expected = key.mac(&mac, &fields.content(chain.workspace, row.seq));
                (fields.mac == expected).then_some(expected)
            });
            let Some(expected) = expected else {
                break 'chain Some(format!(
                    "row {} is not what was written, or does not follow the row before it",
                    row.seq
                ));
            };
            (seq, mac) = (row.seq, expected);
            if is_other(seq, &mac) {
                break 'chain Some(not_the_noted(seq));
            }
        }
    };
    let furthest = noted
        .iter()
        .map(|noted| noted.seq)
        .max()
        .unwrap_or_default();
    let flaw = flaw.or_else(|| match &chain.head {
        None => Some("the head is missing".to_owned()),
        Some((last, _)) if *last > seq => {
            Some(format!("rows {} to {last} are missing at the end", seq + 1))
        }
        Some((last, head)) if *last < seq || *head != mac => {
            Some(format!("the head names row {last} and not the last row"))
        }
        Some(_) => None,
    });
    // What a crash has left in the journal belongs to the chain.
    let flaw = flaw.or_else(|| {
        let (links, _) = left.behind(key, chain.workspace, (seq, mac));
        for link in links {
            (seq, mac) = (link.seq, link.mac);
            if is_other(seq, &mac) {
                return Some(not_the_noted(seq));
            }
        }
        (furthest > seq).then(|| {
            let next = seq + 1;
            format!(
                "rows {next} to {furthest} are missing at the end: a head at {furthest} was noted"
            )
        })
    });
    Ok(Verdict {
        workspace: chain.name.clone(),
        sound: seq,
        mac: hex::encode(mac),
        flaw,
    })
}
