//! Tests of the public API, compiled to a single binary.

mod chat;
mod parquet;
mod parquet_types;
mod prompts;
mod record;
mod shapes;
mod special;
mod token_set;
mod tokenizer;
