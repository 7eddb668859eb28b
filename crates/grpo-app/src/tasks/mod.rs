//! The tasks whose crates do not exist yet.

pub(crate) mod infill;
pub(crate) mod replies;
