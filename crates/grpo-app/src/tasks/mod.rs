//! The tasks whose crates do not exist yet.

pub(crate) mod molecules;
