#![doc = include_str!("../README.md")]
//!
//! - [`CounterRng`] computes every random number in the workspace from a seed, a purpose and a
//!   counter.
//! - [`EpochOrder`] iterates over a corpus in shuffled order and can resume at any position. [`Mixture`] says how
//!   often it uses the items of several files.
//! - [`PromptReader`] streams prompts from JSON lines or Parquet files. [`ChatTemplate`] formats
//!   conversations, [`TextTokenizer`] converts text to ids, and [`SpecialIds`] contains the ids of
//!   the begin, end and padding tokens.
//! - [`split_groups`] performs a stratified split that keeps groups together. [`RecordSplit`] is a
//!   split into training, validation and test records.
//! - [`Prompt`], [`Completion`] and [`Group`] carry data from sampling to rewards and losses.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod answer_form;
mod augmentation;
mod bounded;
mod caught;
mod cell_separator;
mod chat;
mod codec;
mod config_fault;
mod csv_quotes;
mod data_files;
mod error;
mod example;
mod expansion;
mod json;
mod keys_of;
mod line_reader;
mod mixture;
mod model_json;
mod number_cell;
mod one_or_several;
mod order;
mod origin;
mod own_folder;
mod parquet_columns;
mod parquet_file;
mod parquet_footer;
mod parquet_values;
mod passwords;
mod plain_words;
mod prefix;
mod prompts;
mod ranges;
mod record;
mod record_files;
mod regex_words;
pub mod regular_file;
mod rng;
mod sample;
pub mod schema;
mod shell;
mod special;
mod split;
mod split_draw;
pub mod statistics;
mod strict;
mod system_fault;
mod token_columns;
mod token_set;
mod tokenizer;
mod tokenizer_parts;
mod tokenizer_training;

pub use answer_form::AnswerForm;
pub use augmentation::Augmentation;
pub use caught::{caught, caught_message};
pub use cell_separator::cell_separator;
pub use chat::{ChatOptions, ChatTemplate, Message};
pub use codec::{Codec, CodecKind, Codecs, TextCodec};
pub use config_fault::{ConfigFault, counted, deserialize_settings, short_number, short_text};
pub use csv_quotes::{CsvQuoteFaults, CsvQuotes};
pub use data_files::{DataFiles, ListedFile, WeightedFile};
pub use error::{DataError, Names, Shortened, described, with_remedy};
pub use example::{Example, Examples};
pub use grpo_ranges::Ranges;
pub use json::{JsonEntries, json_line_reason, json_reason, parse_json, parse_model_json};
pub use keys_of::keys_of;
pub use line_reader::{LineReader, too_long};
pub use mixture::Mixture;
pub use number_cell::{decimal_comma_remedy, number_cell};
pub use one_or_several::OneOrSeveral;
pub use order::{EpochOrder, OrderPosition};
pub use origin::{
    Bytes, FileOrigin, RECORD_ENDINGS, Records, STANDARD_INPUT, TSV_REMEDY, open_file, read_text,
    read_text_file,
};
pub use own_folder::{FileKind, FileLock, ForeignFile, Locked, OwnFolder, dangling_link};
pub use parquet_file::{ParquetFault, ParquetFile};
pub use passwords::without_passwords;
pub use plain_words::{in_plain_words, plain_numbers, without_os_code};
pub use prefix::Prefix;
pub use prompts::{
    CompletionSource, LineFault, ObjectReader, ObjectRow, PromptReader, PromptRecord, PromptSource,
    RecordFormat, RecordKeys, message_text, nested_field,
};
pub use ranges::{Numbers, Ranges, check_range, in_range};
pub use record::{Completion, CompletionParts, Finish, Prompt, SampleKey, SampledUnder};
pub use record_files::{ExampleFile, LongRecord, PromptFile, RecordReport};
pub use regex_words::regex_reason;
pub use rng::{CounterRng, Purpose};
pub use sample::{
    Bonus, Group, LARGEST_REWARD, Outcome, PartName, Sample, Scored, TokenTrace, VALID,
};
pub use shell::shell_word;
pub use special::SpecialIds;
pub use split::{Quartiles, RecordSplit, SplitError, SplitFractions, group_by_keys, split_groups};
pub use split_draw::{split_draw, split_limit};
pub use system_fault::{note_system_fault, system_fault, system_words, take_system_fault};
pub use token_columns::TokenColumns;
pub use token_set::{TokenSet, TokenSetError, TokenSetIter};
pub use tokenizer::TextTokenizer;
pub use tokenizer_training::{SMALLEST_VOCABULARY, TOKENIZER_FILES, train_tokenizer};
