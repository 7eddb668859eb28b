//! Tests of the public API, compiled to a single binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod chat;
mod known_sets;
mod parquet;
mod parquet_types;
mod prompts;
mod record;
mod shapes;
mod special;
mod token_set;
mod tokenizer;
mod tokenizer_parts;
