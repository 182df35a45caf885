-- What ToolSources offer. They belong to a namespace, not to a Workspace, so nothing here names one.
create table source (
    uid text not null primary key,
    -- What the source said last, as its kind reads it.
    answer BYTEA not null,
    answered_at bigint not null,
    -- The revision whose tools are trusted: the first one seen, until somebody approves another.
    approved text not null
);

-- The tools of a revision: what is approved, and what a person compares it with.
create table source_revision (
    uid text not null,
    revision text not null,
    -- JSON: operation to what is approved of it.
    tools text not null,
    seen_at bigint not null,
    primary key (uid, revision)
);
