//! Tests through the public interface, in one binary.

mod corpus;
mod molecules;
mod record;
mod vocabulary;
