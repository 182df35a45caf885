-- One row per tool call, permitted or not, in one chain per Workspace. Arguments are kept as a keyed digest alone,
-- unless the Workspace says otherwise.
create table audit (
    workspace BIGINT not null references workspace (id),
    -- 1, 2, 3, … without a gap.
    seq BIGINT not null,
    id BIGINT not null,
    at BIGINT not null,
    -- Who called: audit_caller.
    caller BIGINT not null,
    tool TEXT not null,
    decision TEXT not null,
    outcome TEXT not null,
    duration_us BIGINT not null,
    request_bytes BIGINT not null,
    response_bytes BIGINT not null,
    arguments_digest BYTEA not null,
    -- Only where the Workspace says so, and then at most 64 KiB.
    arguments TEXT,
    -- Keyed hash of the row and of the one before it.
    mac BYTEA not null,
    primary key (workspace, seq)
);

-- Agents with their keys, once each, so that rows are small.
create table audit_caller (
    workspace BIGINT not null references workspace (id),
    id BIGINT not null,
    agent TEXT not null,
    agent_uid TEXT not null,
    key_id TEXT not null,
    primary key (workspace, id),
    unique (workspace, agent_uid, key_id, agent)
);

-- The last row of each chain.
create table audit_head (
    workspace BIGINT not null primary key references workspace (id),
    seq BIGINT not null,
    mac BYTEA not null
);
