-- Notes of a workspace. Names are in lower case.
create table memory (
    workspace BIGINT not null references workspace (id),
    name TEXT not null,
    content TEXT not null,
    saved_by TEXT not null,
    saved_at BIGINT not null,
    primary key (workspace, name)
);
