//! Tests through the public interface, in one binary.

mod corpus;
mod vocabulary;
