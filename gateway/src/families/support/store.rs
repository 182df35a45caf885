//! The SQL of tickets.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::tickets::{Changed, Conversation, Message, Priority, Sender, Status, Ticket};
use crate::store::{Id, Scope, Store, StoreError, WriteTx, while_doing};

const COLUMNS: &str =
    "id, agent, agent_uid, subject, priority, status, created_at, updated_at, status_by, status_at";
/// Messages of a page at most, and the bytes of texts after which it ends, one message at least.
const PAGE: i64 = 200;
const PAGE_BYTES: usize = 256 * 1024;
/// Tickets of one agent that are not closed, and messages of one ticket that its agent may add to.
pub(super) const MOST_OPEN: i64 = 50;
pub(super) const MOST_MESSAGES: i64 = 200;

/// The agent that sends something, and the id that it gives its call.
pub(super) struct Writer {
    pub(super) agent: String,
    pub(super) agent_uid: String,
    pub(super) request: Option<Request>,
}

pub(super) struct Request {
    pub(super) id: String,
    /// Of what is sent.
    pub(super) digest: String,
}

/// What an agent has sent, now or by the same call before.
pub(super) struct Sent {
    pub(super) ticket: Id,
    pub(super) message: Id,
}

/// Why nothing was sent. It undoes what was begun.
pub(super) enum Unsent {
    Store(StoreError),
    /// The request's id was used for something else.
    OtherContent,
    TooManyTickets,
    TooManyMessages,
    NoSuchTicket,
}

impl From<StoreError> for Unsent {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) async fn create(
    store: &Store,
    scope: Scope,
    from: Writer,
    subject: String,
    body: String,
    priority: Priority,
) -> Result<Sent, Unsent> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let (ticket, message, now) = (tx.new_id(), tx.new_id(), tx.now());
                let sent = Sent { ticket, message };
                if let Some(before) = claim(tx, scope, &from, &sent).await? {
                    return Ok(before);
                }
                let query = sqlx::query(
                    "select count(*) from support_ticket
                     where workspace = $1 and agent_uid = $2 and status <> 'closed'",
                )
                .bind(scope.row())
                .bind(from.agent_uid.clone());
                let open = tx.count("count tickets", query).await?;
                if open >= MOST_OPEN {
                    return Err(Unsent::TooManyTickets);
                }
                sqlx::query(
                    "insert into support_ticket
                         (workspace, id, agent, agent_uid, subject, priority, status, created_at, updated_at, status_by, status_at)
                     values ($1, $2, $3, $4, $5, $6, 'open', $7, $7, $3, $7)",
                )
                .bind(scope.row())
                .bind(ticket.row())
                .bind(from.agent.clone())
                .bind(from.agent_uid)
                .bind(subject)
                .bind(priority.word())
                .bind(now)
                .execute(tx.connection())
                .await
                .map_err(while_doing("create a ticket"))?;
                insert(tx, scope, &sent, Sender::Agent, from.agent, body).await?;
                Ok(sent)
            })
        })
        .await
}

/// Adds an agent's message to a ticket of its own, which is the people's turn then.
pub(super) async fn reply(
    store: &Store,
    scope: Scope,
    from: Writer,
    ticket: Id,
    body: String,
) -> Result<Sent, Unsent> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let message = tx.new_id();
                let sent = Sent { ticket, message };
                if let Some(before) = claim(tx, scope, &from, &sent).await? {
                    return Ok(before);
                }
                let now = tx.now();
                let found = sqlx::query(
                    "update support_ticket set status = 'open', status_by = $4, status_at = $5, updated_at = $5
                     where workspace = $1 and id = $2 and agent_uid = $3",
                )
                .bind(scope.row())
                .bind(ticket.row())
                .bind(from.agent_uid)
                .bind(from.agent.clone())
                .bind(now)
                .execute(tx.connection())
                .await
                .map_err(while_doing("open a ticket"))?;
                if found.rows_affected() == 0 {
                    return Err(Unsent::NoSuchTicket);
                }
                // The ticket's row is ours until the end, so nobody adds to it meanwhile.
                let query = sqlx::query(
                    "select count(*) from support_message where workspace = $1 and ticket = $2",
                )
                .bind(scope.row())
                .bind(ticket.row());
                let messages = tx.count("count messages", query).await?;
                if messages >= MOST_MESSAGES {
                    return Err(Unsent::TooManyMessages);
                }
                insert(tx, scope, &sent, Sender::Agent, from.agent, body).await?;
                Ok(sent)
            })
        })
        .await
}

/// Takes the request's id for `sent`, or tells what it was taken for before.
async fn claim(
    tx: &mut WriteTx<'_>,
    scope: Scope,
    from: &Writer,
    sent: &Sent,
) -> Result<Option<Sent>, Unsent> {
    let Some(request) = &from.request else {
        return Ok(None);
    };
    let failed = while_doing("note a request's id");
    let claimed = sqlx::query(
        "insert into support_request (workspace, agent_uid, request_id, digest, ticket, message)
         values ($1, $2, $3, $4, $5, $6)
         on conflict (workspace, agent_uid, request_id) do nothing",
    )
    .bind(scope.row())
    .bind(from.agent_uid.clone())
    .bind(request.id.clone())
    .bind(request.digest.clone())
    .bind(sent.ticket.row())
    .bind(sent.message.row())
    .execute(tx.connection())
    .await
    .map_err(&failed)?;
    if claimed.rows_affected() == 1 {
        return Ok(None);
    }
    let row = sqlx::query(
        "select digest, ticket, message from support_request
         where workspace = $1 and agent_uid = $2 and request_id = $3",
    )
    .bind(scope.row())
    .bind(from.agent_uid.clone())
    .bind(request.id.clone())
    .fetch_one(tx.connection())
    .await
    .map_err(&failed)?;
    let digest: String = row.try_get("digest").map_err(&failed)?;
    if digest != request.digest {
        return Err(Unsent::OtherContent);
    }
    let id = |column| row.try_get(column).map(Id::from_row).map_err(&failed);
    Ok(Some(Sent {
        ticket: id("ticket")?,
        message: id("message")?,
    }))
}

async fn insert(
    tx: &mut WriteTx<'_>,
    scope: Scope,
    sent: &Sent,
    sender: Sender,
    author: String,
    body: String,
) -> Result<(), StoreError> {
    let now = tx.now();
    sqlx::query(
        "insert into support_message (workspace, ticket, id, sender, author, body, sent_at)
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(scope.row())
    .bind(sent.ticket.row())
    .bind(sent.message.row())
    .bind(sender.word())
    .bind(author)
    .bind(body)
    .bind(now)
    .execute(tx.connection())
    .await
    .map(|_| ())
    .map_err(while_doing("write a message"))
}

/// Tickets of a Workspace, or of one agent alone, newest first.
pub(super) async fn list(
    store: &Store,
    scope: Scope,
    agent_uid: Option<&str>,
    status: Option<Status>,
    before: Option<Id>,
    limit: i64,
) -> Result<Vec<Ticket>, StoreError> {
    let sql = format!(
        "select {COLUMNS} from support_ticket
         where workspace = $1 and ($2 = '' or agent_uid = $2) and ($3 = '' or status = $3) and id < $4
         order by id desc limit $5"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(agent_uid.unwrap_or_default())
        .bind(status.map_or("", Status::word))
        .bind(before.map_or(i64::MAX, Id::row))
        .bind(limit);
    let mut reader = store.read().await?;
    reader.all("list tickets", query, read).await
}

/// A ticket of a Workspace, or of one agent alone, with the messages after `after`.
pub(super) async fn conversation(
    store: &Store,
    scope: Scope,
    agent_uid: Option<&str>,
    id: Id,
    after: Option<Id>,
) -> Result<Option<Conversation>, StoreError> {
    let sql = format!(
        "select {COLUMNS} from support_ticket
         where workspace = $1 and id = $2 and ($3 = '' or agent_uid = $3)"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(id.row())
        .bind(agent_uid.unwrap_or_default());
    let mut reader = store.read().await?;
    let Some(ticket) = reader.one("read a ticket", query, read).await? else {
        return Ok(None);
    };
    let query = sqlx::query(
        "select id, sender, author, body, sent_at from support_message
         where workspace = $1 and ticket = $2 and id > $3 order by id limit $4",
    )
    .bind(scope.row())
    .bind(id.row())
    .bind(after.map_or(-1, Id::row))
    .bind(PAGE + 1);
    let found = reader
        .all("read a ticket's messages", query, read_message)
        .await?;
    let all = found.len();
    let mut messages = Vec::new();
    let mut bytes = 0;
    for (message, _) in found.into_iter().zip(0..PAGE) {
        bytes += message.body.len();
        if bytes > PAGE_BYTES && !messages.is_empty() {
            break;
        }
        messages.push(message);
    }
    Ok(Some(Conversation {
        has_more: messages.len() < all,
        ticket,
        messages,
    }))
}

/// Adds a person's message to a ticket, which is the agent's turn then.
pub(super) async fn answer(
    store: &Store,
    scope: Scope,
    ticket: Id,
    by: String,
    body: String,
) -> Result<Option<Message>, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let now = tx.now();
                let found = sqlx::query(
                    "update support_ticket set status = 'answered', status_by = $3, status_at = $4, updated_at = $4
                     where workspace = $1 and id = $2",
                )
                .bind(scope.row())
                .bind(ticket.row())
                .bind(by.clone())
                .bind(now)
                .execute(tx.connection())
                .await
                .map_err(while_doing("answer a ticket"))?;
                if found.rows_affected() == 0 {
                    return Ok(None);
                }
                let message = Message {
                    id: tx.new_id(),
                    sender: Sender::Team,
                    author: by.clone(),
                    body: body.clone(),
                    sent_at: now,
                };
                let sent = Sent {
                    ticket,
                    message: message.id,
                };
                insert(tx, scope, &sent, Sender::Team, by, body).await?;
                Ok(Some(message))
            })
        })
        .await
}

/// Closes a ticket, or opens a closed one.
pub(super) async fn set_status(
    store: &Store,
    scope: Scope,
    id: Id,
    status: Status,
    by: String,
) -> Result<Option<Changed>, StoreError> {
    let from = match status {
        Status::Closed => "status <> 'closed'",
        Status::Open | Status::Answered => "status = 'closed'",
    };
    let change = format!(
        "update support_ticket set status = $3, status_by = $4, status_at = $5, updated_at = $5
         where workspace = $1 and id = $2 and {from} returning {COLUMNS}"
    );
    store
        .write(move |tx| {
            Box::pin(async move {
                let query = sqlx::query(sqlx::AssertSqlSafe(change))
                    .bind(scope.row())
                    .bind(id.row())
                    .bind(status.word())
                    .bind(by)
                    .bind(tx.now());
                let doing = "set a ticket's status";
                if let Some(ticket) = tx.one(doing, query, read).await? {
                    return Ok(Some(Changed::Now(ticket)));
                }
                let sql = format!(
                    "select {COLUMNS} from support_ticket where workspace = $1 and id = $2"
                );
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(scope.row())
                    .bind(id.row());
                Ok(tx.one(doing, query, read).await?.map(Changed::Already))
            })
        })
        .await
}

fn read(row: &AnyRow) -> sqlx::Result<Ticket> {
    let (priority, status): (String, String) = (row.try_get("priority")?, row.try_get("status")?);
    let unknown = || sqlx::Error::Decode("an unknown word".into());
    Ok(Ticket {
        id: Id::from_row(row.try_get("id")?),
        agent: row.try_get("agent")?,
        agent_uid: row.try_get("agent_uid")?,
        subject: row.try_get("subject")?,
        priority: Priority::from_word(&priority).ok_or_else(unknown)?,
        status: Status::from_word(&status).ok_or_else(unknown)?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        status_by: row.try_get("status_by")?,
        status_at: row.try_get("status_at")?,
    })
}

fn read_message(row: &AnyRow) -> sqlx::Result<Message> {
    let sender: String = row.try_get("sender")?;
    Ok(Message {
        id: Id::from_row(row.try_get("id")?),
        sender: Sender::from_word(&sender)
            .ok_or_else(|| sqlx::Error::Decode("an unknown sender".into()))?,
        author: row.try_get("author")?,
        body: row.try_get("body")?,
        sent_at: row.try_get("sent_at")?,
    })
}
