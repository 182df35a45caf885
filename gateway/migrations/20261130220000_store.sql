-- Every row of every table belongs to a workspace; this gives each `<namespace>.<name>` its number.
create table workspace (
    id BIGINT not null primary key,
    name TEXT not null unique
);

-- How often the store was opened: the part of new ids that tells processes apart.
create table opening (
    one BIGINT not null primary key,
    count BIGINT not null
);
insert into opening (one, count) values (1, 0);
