//! Tests through the public interface, in one binary.

mod characters;
mod chat;
mod infill;
mod masked_stream;
mod masking;
mod molecules;
mod parquet;
mod passages;
mod prompts;
mod record;
mod replies;
mod reply_cleaning;
mod reply_training;
mod special;
mod token_set;
mod tokenizer;
