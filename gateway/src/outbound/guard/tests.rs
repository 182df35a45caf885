//! What is blocked before any name is resolved.
