//! Tests of the public API, compiled to a single binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod corpus;
mod reader;
mod vocabulary;
