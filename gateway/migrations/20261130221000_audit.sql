-- One row per tool call, permitted or not. Arguments are kept as a keyed digest alone.
create table audit (
    workspace BIGINT not null references workspace (id),
    id BIGINT not null,
    at BIGINT not null,
    agent TEXT not null,
    agent_uid TEXT not null,
    key_id TEXT not null,
    tool TEXT not null,
    decision TEXT not null,
    outcome TEXT not null,
    duration_us BIGINT not null,
    request_bytes BIGINT not null,
    response_bytes BIGINT not null,
    arguments_digest TEXT not null,
    primary key (workspace, id)
);
