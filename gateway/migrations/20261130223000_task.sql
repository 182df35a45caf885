-- Tasks of a workspace. `leased_*` say who was handed a task that is not started yet, and until when.
create table task (
    workspace BIGINT not null references workspace (id),
    id BIGINT not null,
    title TEXT not null,
    body TEXT not null,
    status TEXT not null,
    assignee TEXT not null,
    created_by TEXT not null,
    created_at BIGINT not null,
    updated_at BIGINT not null,
    version BIGINT not null,
    leased_agent TEXT,
    leased_worker TEXT,
    leased_until BIGINT,
    primary key (workspace, id)
);
create index task_queue on task (workspace, id) where status = 'notstarted' and assignee = 'agent';
create index task_lease on task (workspace, leased_agent, leased_worker) where leased_agent is not null;

-- What was said in a task, by its agents and people.
create table task_message (
    workspace BIGINT not null,
    task BIGINT not null,
    id BIGINT not null,
    sender TEXT not null,
    author TEXT not null,
    text TEXT not null,
    sent_at BIGINT not null,
    primary key (workspace, task, id),
    foreign key (workspace, task) references task (workspace, id)
);

-- Every status that a task has had, and who set it.
create table task_status (
    workspace BIGINT not null,
    task BIGINT not null,
    id BIGINT not null,
    status TEXT not null,
    author TEXT not null,
    set_at BIGINT not null,
    primary key (workspace, task, id),
    foreign key (workspace, task) references task (workspace, id)
);
