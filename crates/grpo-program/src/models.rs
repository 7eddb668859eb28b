//! Commands that create models and tokenizers.

mod card;
pub(crate) mod download;
pub(crate) mod export;
pub(crate) mod init;
pub(crate) mod merge;
pub(crate) mod train_tokenizer;
