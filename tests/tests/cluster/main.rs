//! Everything that needs the test cluster, in one program, so that it links once and installs the release once.

mod crds;
mod harness;
mod operator;
