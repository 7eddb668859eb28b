#![doc = include_str!("../README.md")]
//!
//! ```text
//! runs/<name>/
//!   config.toml            the resolved configuration
//!   run.json               versions, seed, device, data            RunInfo
//!   metrics.jsonl          one JSON object per step, in supervised training also per validation  RunFolder::metrics_from
//!   ledger.jsonl           which weights sampled and which updates used each completion; a hash chain   LedgerStep
//!   events.jsonl           guards, roll-backs, resumptions; a hash chain  Event
//!   events.out.tfevents.…  the metrics for TensorBoard              TensorBoard
//!   completions/
//!     step-N.parquet       completions with rewards and token statistics  CompletionRecord
//!   comparison.json        the policy before and after, evaluated on the same prompts  Comparison
//!   checkpoints/step-N/    a model or an adapter, and manifest.json with each file's hash  Checkpoint
//!     trainer/             the remaining state of the run
//!   model/                 the trained model at the end of the run (adapter/ for an adapter)
//!   rolled-back/N/         metrics, ledger and completions that the Nth roll-back undid  RunFolder::set_aside
//!   .lock                  held by the process that writes  RunLock
//! ```
//!
//! Files and folders are written under a temporary name, synced and then renamed, so readers see
//! either the old or the new version. Growing files are appended to line by line.

mod atomic;
mod audit;
mod chain;
mod checkpoints;
mod comparison;
mod completions;
mod error;
mod events;
mod folder;
mod going_back;
mod info;
mod json_lines;
mod ledger;
mod logprobs;
mod manifest;
mod tensorboard;

pub use atomic::{Existing, atomic_write, write_folder_atomically};
pub use audit::{
    Evidence, Finding, Period, Plan, RecordPlan, ReferencePlan, ReferenceUpdate, StoredWeights,
    Verdict, Violation, audit, audit_records,
};
pub use chain::ChainWriter;
pub use checkpoints::{Checkpoint, Newest};
pub use comparison::{ComparedSample, Comparison, DiversityScale, Measure};
pub use completions::{CompletionRecord, RecordedOutcome};
pub use error::RunError;
pub use events::{Event, EventKind, EventProof, ProvenEvent};
pub use folder::{RunFolder, RunLock, lock_folder};
pub use info::{DataFile, RunInfo};
pub use json_lines::{JsonLinesWriter, read_json_lines, step_of_line};
pub use ledger::{
    CompletionDigest, LedgerCompletion, LedgerRollout, LedgerStep, LedgerUpdate, RecordedHashes,
    ReferenceChange,
};
pub use logprobs::{CompletionLogprobs, LogprobTable};
pub use manifest::{
    VerifiedFolder, sha256, sha256_of_file, sha256_of_manifest, verify, write_manifest,
};
pub use tensorboard::TensorBoard;
