//! Everything that needs the test cluster, in one program, so that it links once and installs the release once.

mod crds;
mod deletion;
mod grants;
mod harness;
mod keys;
mod network;
mod operator;
mod outage;
mod people;
mod quickstart;
mod sources;
