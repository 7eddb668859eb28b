//! Plain data of a GRPO run: no tensors, no models, no terminal.
//!
//! - [`CounterRng`] gives every random number of the workspace as a function of
//!   `(seed, purpose, counter)`.
//! - [`MoleculeReader`] streams a user's `.smi` or CSV file, [`Vocabulary`] turns SMILES into token
//!   ids, [`Corpus`] puts the two together and reports what it left out.
//! - [`EpochOrder`] walks over a corpus in a shuffled order that can be resumed anywhere.
//! - [`Prompt`], [`Completion`] and [`Group`] are what sampling hands to rewards and losses.

mod codec;
mod corpus;
mod error;
mod example;
mod molecules;
mod order;
mod record;
mod rng;
mod smiles_tokens;
mod vocabulary;

pub use codec::Codec;
pub use corpus::{Corpus, CorpusOptions, CorpusReport, DropReason, DroppedMolecule, SplitBy};
pub use error::{DataError, Names, UnknownToken};
pub use example::{Example, Examples};
pub use molecules::{MoleculeFormat, MoleculeReader, MoleculeRecord, ReadOptions};
pub use order::{EpochOrder, OrderPosition};
pub use record::{
    Completion, CompletionParts, Conditions, Finish, Group, Prompt, SampleKey, SampledUnder,
};
pub use rng::{CounterRng, Purpose};
pub use smiles_tokens::{SmilesTokens, smiles_tokens};
pub use vocabulary::{BOUNDARY, Vocabulary};
