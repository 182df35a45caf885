-- What is used up of a grant's limit in the current window. Replicas draw slices of it.
create table budget (
    workspace bigint not null references workspace (id),
    grant_uid text not null,
    -- minute | day
    per text not null,
    -- Start of the window, Unix milliseconds.
    starts_at bigint not null,
    used bigint not null,
    primary key (workspace, grant_uid, per)
);
