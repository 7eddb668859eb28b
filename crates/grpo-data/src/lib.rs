#![doc = include_str!("../README.md")]
//!
//! - [`CounterRng`] gives every random number of the workspace as a function of
//!   `(seed, purpose, counter)`.
//! - [`MoleculeReader`] streams a user's `.smi` or CSV file.
//! - [`EpochOrder`] walks over a corpus in a shuffled order that can be resumed anywhere.
//! - [`PromptReader`] streams a user's prompts from JSON lines or Parquet; [`ChatTemplate`] makes
//!   text of conversations, [`TextTokenizer`] ids of text, and [`SpecialIds`] says which of them
//!   begin, end and pad.
//! - [`read_pairs`] reads tweets with their replies, [`split_by_tweet`] keeps those of a tweet together, and
//!   [`ReplyTemplate`] puts a tweet to a model.
//! - [`Prompt`], [`Completion`] and [`Group`] are what sampling hands to rewards and losses.

mod caught;
mod characters;
mod chat;
mod codec;
mod config_fault;
mod error;
mod example;
mod lot;
mod masked_stream;
mod masking;
mod model_json;
mod molecules;
mod order;
mod origin;
mod passages;
mod prompts;
mod record;
mod record_files;
mod replies;
mod rng;
mod sample;
mod special;
pub mod statistics;
mod token_set;
mod tokenizer;
mod tokenizer_training;

pub use caught::caught;
pub use characters::{BLANK, Characters};
pub use chat::{ChatOptions, ChatTemplate, Message};
pub use codec::{Codec, CodecKind, Codecs, TextCodec};
pub use config_fault::{ConfigFault, deserialize_settings};
pub use error::{DataError, Names, PromptFault, Shortened};
pub use example::{Example, Examples};
pub use lot::split_draw;
pub use masked_stream::MaskedStream;
pub use masking::{Corruption, MaskedText, Masking, MaskingPlan, MaskingPreset, part_of};
pub use molecules::{MoleculeFormat, MoleculeReader, MoleculeRecord, ReadOptions};
pub use order::{EpochOrder, OrderPosition};
pub use origin::{Bytes, FileOrigin, open_file, read_text};
pub use passages::{Half, PassageOptions, PassageReport, PassageUnit, Passages};
pub use prompts::{CompletionSource, PromptReader, PromptRecord, PromptSource};
pub use record::{
    Completion, CompletionParts, Conditions, Finish, Prompt, SampleKey, SampledUnder,
};
pub use record_files::{ExampleFile, PromptFile, RecordReport};
pub use replies::{
    CleanedPairs, CleaningPlan, CleaningReport, CleaningRules, CollectionFilter, MOST_DIFFERENCE,
    PairFault, PairFile, PairRecord, PairReport, PairSplit, PairSummary, PhaseSplit,
    PhaseStatistics, PhaseSummary, QuartileShares, Quartiles, Reason, RejectedPair, ReplyExamples,
    ReplyPrompts, ReplyTemplate, SkippedLine, SplitFractions, Spread, TestResult, ValidationRules,
    clean_reply, quality, read_pairs, split_by_tweet, split_phases,
};
pub use rng::{CounterRng, Purpose};
pub use sample::{Bonus, Group, Outcome, PartName, Sample, Scored, TokenTrace};
pub use special::SpecialIds;
pub use token_set::{TokenSet, TokenSetError, TokenSetIter};
pub use tokenizer::TextTokenizer;
pub use tokenizer_training::{SMALLEST_VOCABULARY, train_tokenizer};
