//! Tests through the public interface, in one binary.

mod chat;
mod parquet;
mod prompts;
mod record;
mod special;
mod token_set;
mod tokenizer;
