//! Tests of the public API, compiled to a single binary.

mod chat;
mod parquet;
mod prompts;
mod record;
mod special;
mod token_set;
mod tokenizer;
