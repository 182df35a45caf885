-- Calls that a person has to allow. Bound to the agent's UID, the tool and the arguments; good for one execution.
create table approval (
    workspace bigint not null references workspace (id),
    id bigint not null,
    agent text not null,
    agent_uid text not null,
    tool text not null,
    -- SHA-256 of the canonical arguments, hex.
    digest text not null,
    -- What the person decides about, JSON.
    arguments text not null,
    -- The caller's session, where it has one.
    worker text,
    -- ask | always_ask
    level text not null,
    -- pending | approved | denied | running | done | withdrawn
    state text not null,
    -- 1 while the row answers calls of its digest, then 0.
    active bigint not null,
    created_at bigint not null,
    expires_at bigint not null,
    decided_at bigint,
    decided_by text,
    reason text,
    started_at bigint,
    ended_at bigint,
    -- What the call gave back, JSON; kept for a while, in case the answer got lost.
    result text,
    primary key (workspace, id)
);
create unique index approval_of_call on approval (workspace, agent_uid, tool, digest) where active = 1;
create index approval_by_state on approval (state, id);

-- Tools that a person has allowed for a session or for good (level ask).
create table standing_approval (
    workspace bigint not null references workspace (id),
    id bigint not null,
    agent text not null,
    agent_uid text not null,
    tool text not null,
    -- The session; '*' is every one.
    worker text not null,
    -- Null is for good.
    expires_at bigint,
    granted_by text not null,
    granted_at bigint not null,
    primary key (workspace, id)
);
create index standing_approval_of_agent on standing_approval (workspace, agent_uid, tool);
