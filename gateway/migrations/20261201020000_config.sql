-- Changes of their config that agents have asked for. Bound to the agent's UID.
create table config_request (
    workspace bigint not null references workspace (id),
    id bigint not null,
    agent text not null,
    agent_uid text not null,
    summary text not null,
    -- Merge patch of the Agent's spec, JSON.
    patch text not null,
    -- SHA-256 of the canonical patch, hex.
    digest text not null,
    -- 1 when the agent cannot go on without.
    blocking bigint not null,
    -- open | approved | rejected | superseded
    status text not null,
    created_at bigint not null,
    decided_at bigint,
    decided_by text,
    reason text,
    primary key (workspace, id)
);
create unique index config_request_open on config_request (workspace, agent_uid, digest) where status = 'open';
create index config_request_of_agent on config_request (workspace, agent_uid, id);

-- What an agent has told itself, for its next sessions. Bound to the agent's UID.
create table self_directives (
    workspace bigint not null references workspace (id),
    agent_uid text not null,
    agent text not null,
    directives text not null,
    updated_at bigint not null,
    primary key (workspace, agent_uid)
);
