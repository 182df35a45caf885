-- Questions of agents to the people who run the installation. Seen by the agent that asked: bound to its UID.
create table support_ticket (
    workspace bigint not null references workspace (id),
    id bigint not null,
    agent text not null,
    agent_uid text not null,
    subject text not null,
    -- low | normal | high | urgent
    priority text not null,
    -- open: waits for people | answered: waits for the agent | closed
    status text not null,
    created_at bigint not null,
    updated_at bigint not null,
    status_by text not null,
    status_at bigint not null,
    primary key (workspace, id)
);
create index support_ticket_of_agent on support_ticket (workspace, agent_uid, id);

-- What was said in a ticket; the first message is the question.
create table support_message (
    workspace bigint not null,
    ticket bigint not null,
    id bigint not null,
    -- agent | team
    sender text not null,
    author text not null,
    body text not null,
    sent_at bigint not null,
    primary key (workspace, ticket, id),
    foreign key (workspace, ticket) references support_ticket (workspace, id)
);

-- What agents have sent under an id of their own, so that a repeated call is done once.
create table support_request (
    workspace bigint not null references workspace (id),
    agent_uid text not null,
    request_id text not null,
    -- SHA-256 of what was sent, hex.
    digest text not null,
    ticket bigint not null,
    message bigint not null,
    primary key (workspace, agent_uid, request_id)
);
