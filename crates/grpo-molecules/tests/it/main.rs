//! Tests of the public API, compiled to a single binary.

mod corpus;
mod reader;
mod vocabulary;
