-- Which calls went to sources, and what they cost. Metadata alone: nothing here says what a call carried.
create table usage (
    workspace bigint not null references workspace (id),
    id bigint not null,
    at bigint not null,
    agent text not null,
    agent_uid text not null,
    -- Per-operation name.
    tool text not null,
    -- Name of the ToolSource.
    provider text not null,
    method text not null,
    path text not null,
    -- The upstream's HTTP status; null when it gave no answer.
    status bigint,
    outcome text not null,
    latency_us bigint not null,
    cost_cents bigint not null,
    request_bytes bigint not null,
    response_bytes bigint not null,
    primary key (workspace, id)
);
